# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot: the key that signs what DKMS builds is asked to be enrolled; a person confirms it at the console."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import mok
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Seconds. mokutil writes one variable of the firmware's.
LIMIT = 30.0
#: What MokManager takes.
SHORTEST, LONGEST = 1, 256


@dataclass(frozen=True)
class Wish:
    """Whether the key may be asked to be enrolled, and the password that the console will ask for."""

    enroll: bool = False
    password: str = ""


def ensure(runner: Runner, wish: Wish, predicted: bool = False) -> t.Optional[Finding]:
    """Why a module that was built here would not be loaded under Secure Boot, None where it would.

    Asks for the enrolment where that is wished; with ``predicted`` nothing is asked.
    """
    state = mok.probe(runner)
    if state in (None, "enrolled"):
        return None
    if state == "no_key":
        return _finding(
            "DKMS has made no key",
            "a key in " + " or ".join(mok.CERTIFICATES),
            "update DKMS to 3 or newer, which makes one and signs with it, or take modules that are signed already",
        )
    if state == "not_enrolled":
        problem = "" if predicted else _ask(runner, wish)
        if problem:
            return _finding(
                f"the key {mok.certificate(runner)} is not enrolled: {problem}",
                "a key that the firmware trusts",
                "set driver_mok_enroll: true and driver_mok_password, or enrol it by hand: mokutil --import FILE",
            )
    return _finding(
        f"the key {mok.certificate(runner)} is to be enrolled at the next start",
        "a key that the firmware trusts",
        "restart the host and confirm at its console within ten seconds: Enroll MOK, Continue, Yes, the password of"
        " driver_mok_password, Reboot; then run again",
        "reboot",
    )


def _ask(runner: Runner, wish: Wish) -> str:
    """Why the firmware was not asked, "" where it was. The password goes through stdin: all can see an argument."""
    if not wish.enroll:
        return "driver_mok_enroll is not set"
    if not SHORTEST <= len(wish.password) <= LONGEST or "\n" in wish.password:
        length = len(wish.password)
        return f"driver_mok_password has {length} characters, and {SHORTEST} to {LONGEST} in one line are needed"
    argv = ["mokutil", "--import", mok.certificate(runner)]
    result = runner.run(argv, limit=LIMIT, stdin=f"{wish.password}\n{wish.password}\n".encode())
    return f"mokutil: {result.problem}" if result.problem else ""


def _finding(found: str, expected: str, reason: str, action: str = "fix configuration") -> Finding:
    return Finding("secure-boot-key", "fail", found=found, expected=expected, action=action, reason=reason)
