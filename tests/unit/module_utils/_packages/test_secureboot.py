# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot: what the firmware's lists say of DKMS's key, and how its enrolment is asked for."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import secureboot
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import mok
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

KEY, OTHER = b"0\x82\x03\x01 the certificate of DKMS", b"0\x82\x03\x01 the distribution's certificate"
#: Attributes of a variable, then a list of signatures with its head.
HEAD = b"\x06\x00\x00\x00" + bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072") + bytes(12) + bytes(16)
# It reads what mokutil reads, twice from a standard input that is no terminal, and asks nobody.
MOKUTIL = """#!/bin/sh
read -r first && read -r second && [ "$first" = "$second" ] || exit 1
echo "$*" > {root}/arguments; echo "$first" > {root}/password; cat {root}/key > {root}/{new}
"""


def lay_out(root: Path, **files: bytes) -> Runner:
    (root / "sys/firmware/efi/efivars").mkdir(parents=True)
    (root / "var/lib/dkms").mkdir(parents=True)
    (root / "var/lib/dkms/mok.pub").write_bytes(KEY)
    (root / "key").write_bytes(HEAD + KEY)
    for name, content in files.items():
        (root / f"sys/firmware/efi/efivars/{name}-{mok.GUID}").write_bytes(HEAD + content)
    command = root / "usr/bin/mokutil"
    command.parent.mkdir(parents=True)
    command.write_text(MOKUTIL.format(root=root, new=f"sys/firmware/efi/efivars/MokNew-{mok.GUID}"))
    command.chmod(0o755)
    return Runner(str(root), {"PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, "not_enrolled"),
        ({"MokListRT": OTHER}, "not_enrolled"),
        ({"MokListRT": OTHER + HEAD[4:] + KEY}, "enrolled"),
        # shim splits a list that is longer than a variable may be.
        ({"MokListRT": OTHER, "MokListRT1": KEY}, "enrolled"),
        ({"MokListRT": OTHER, "MokNew": KEY}, "requested"),
        # The list of what is refused is another one.
        ({"MokListXRT": KEY}, "not_enrolled"),
    ],
)
def test_what_the_firmware_knows(tmp_path: Path, files: t.Mapping[str, bytes], state: str) -> None:
    assert mok.probe(lay_out(tmp_path, **files)) == state


def test_without_uefi_and_without_a_key(tmp_path: Path) -> None:
    assert mok.probe(Runner(str(tmp_path))) is None
    runner = lay_out(tmp_path)
    (tmp_path / "var/lib/dkms/mok.pub").unlink()
    assert mok.probe(runner) == "no_key"
    found = secureboot.ensure(runner, secureboot.Wish(True, "secret"))
    assert found is not None and "DKMS has made no key" in found.found


def test_an_enrolment_is_asked_for_once_and_asks_nobody(tmp_path: Path) -> None:
    runner = lay_out(tmp_path, MokListRT=OTHER)
    wish = secureboot.Wish(True, "one secret word")
    found = secureboot.ensure(runner, wish)
    assert found is not None and (found.state, found.action) == ("fail", "reboot")
    assert "confirm at its console" in found.reason and "secret" not in str(found)
    assert (tmp_path / "password").read_text() == "one secret word\n"
    assert (tmp_path / "arguments").read_text() == "--import /var/lib/dkms/mok.pub\n"
    # Until then nothing is asked again.
    (tmp_path / "arguments").unlink()
    again = secureboot.ensure(runner, wish)
    assert again == found and not (tmp_path / "arguments").exists()


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (secureboot.Wish(), "driver_mok_enroll is not set"),
        (secureboot.Wish(True), "driver_mok_password has 0 characters"),
        (secureboot.Wish(True, "a\nb"), "in one line"),
        (secureboot.Wish(True, "x" * 257), "has 257 characters"),
    ],
)
def test_what_is_not_asked(tmp_path: Path, wish: secureboot.Wish, words: str) -> None:
    found = secureboot.ensure(lay_out(tmp_path, MokListRT=OTHER), wish)
    assert found is not None and words in found.found and found.action == "fix configuration"
    assert not (tmp_path / "arguments").exists()


def test_mokutil_that_fails_and_a_key_that_is_known(tmp_path: Path) -> None:
    runner = lay_out(tmp_path, MokListRT=OTHER)
    (tmp_path / "usr/bin/mokutil").write_text("#!/bin/sh\necho 'Failed to write MokNew' >&2; exit 255\n")
    found = secureboot.ensure(runner, secureboot.Wish(True, "secret"))
    assert found is not None and "mokutil: exit status 255: Failed to write MokNew" in found.found
    (tmp_path / f"sys/firmware/efi/efivars/MokListRT-{mok.GUID}").write_bytes(HEAD + KEY)
    assert secureboot.ensure(runner, secureboot.Wish()) is None
