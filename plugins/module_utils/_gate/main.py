# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpufleet-gate: is this host still what was proved? 0 ready, 1 not ready, 2 could not tell."""

from __future__ import annotations

import json
import os
import signal
import sys
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict

RUN_DIR = "/run/gpufleet"
#: Seconds until an answer: of a reading, of a look, of a proof.
READ_LIMIT = 2
LOOK_LIMIT = 20
#: A proof's own limits end it before: torch's import, the products, all devices together.
PROVE_LIMIT = 900
USAGE = """usage: gpufleet-gate [--fresh | --prove] [--json]

Says whether this host is ready to train: 0 ready, 1 not ready, 2 could not tell.
Without an option it reads the last verdict of gpufleet-gate.timer and looks at nothing.

  --fresh   look again, now (as root, this becomes the verdict)
  --prove   look, then compute on every device, as verify.yml does, and record what was proved (root)
  --json    the verdict as JSON
"""
#: This gate is not the one that is asked for.
ANOTHER = 3


def main(argv: t.Sequence[str], installed: t.Mapping[str, t.Any]) -> int:
    """The exit status. ``installed``: what this gate was built with (archive.py)."""
    if argv and not argv[0].startswith("-"):
        from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import commands

        return commands.run(argv, RUN_DIR)
    options = set(argv)
    if options & {"-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0
    # For drift.yml: whether this is the gate of that collection, for that folder, run as root.
    wanted = [option[len("--only=") :] for option in options if option.startswith("--only=")]
    options -= {f"--only={value}" for value in wanted}
    wrong = options - {"--fresh", "--prove", "--json"}
    if wrong:
        sys.stderr.write(f"gpufleet-gate: {' '.join(sorted(wrong))} is no option\n{USAGE}")
        return verdict.EXITS["unknown"]
    if "--prove" in options and os.geteuid() != 0:
        sys.stderr.write("gpufleet-gate: --prove needs root, whose record it writes\n")
        return verdict.EXITS["unknown"]
    if wanted and (os.geteuid() != 0 or wanted != [f"{installed['build']}:{installed['directory']}"]):
        return ANOTHER
    if options & {"--fresh", "--prove"}:
        made = _fresh(installed, prove="--prove" in options)
    else:
        _answer_within(READ_LIMIT)
        made = verdict.read(os.path.join(RUN_DIR, verdict.FILE), verdict.now())
    sys.stdout.write(json.dumps(made) + "\n" if "--json" in options else _words(made))
    sys.stdout.flush()
    return verdict.EXITS[made["state"]]


def _answer_within(seconds: float) -> None:
    """A file system that hangs or an output that nobody reads must not hold a job's start."""

    def late(_number: int, _frame: t.Any) -> None:
        os.write(2, b"gpufleet-gate: no answer in time\n")
        os._exit(verdict.EXITS["unknown"])

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _fresh(installed: t.Mapping[str, t.Any], prove: bool) -> verdict.Verdict:
    import time

    from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import identity
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import look, once
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

    _clean()

    def work() -> verdict.Verdict:
        seen = look.look(Runner(), installed["directory"])
        found = seen.findings
        if prove:
            from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import prove as proof

            found = proof.prove(seen, installed["directory"])
        made = look.judged(found, verdict.now(), installed["valid_for"])
        return {**made, "identity": identity.of(seen.observed, seen.environment)}

    if os.geteuid() != 0:
        return once.run(work, None, "look", time.monotonic() + LOOK_LIMIT)
    # Stopped, it takes its child along, and that one its workers.
    signal.signal(signal.SIGTERM, _stopped)
    try:
        if prove:
            return once.answer(RUN_DIR, "prove", work, PROVE_LIMIT)
        return once.answer(RUN_DIR, "look", work, LOOK_LIMIT)
    except OSError as error:
        return verdict.unknown("look-ended", f"no lock in {RUN_DIR}: {error}", "a folder that root can write")


def _stopped(_number: int, _frame: t.Any) -> None:
    raise SystemExit(verdict.EXITS["unknown"])


def _clean() -> None:
    """Forget what decides where a program takes its code from. What speaks of hidden GPUs stays: it can only warn."""
    for name in [name for name in os.environ if name.startswith(("LD_", "PYTHON", "GCONV_", "GLIBC_"))]:
        del os.environ[name]


def _words(made: verdict.Verdict) -> str:
    """The state, and each Finding that decides it, a line each."""
    lines = [made["state"].replace("_", " ")]
    for finding in made["findings"]:
        if finding["state"] in ("fail", "unknown", "warn"):
            key = f" {finding['subject']['key']}" if finding["subject"].get("key") else ""
            action = f" -> {finding['action']}" if finding["action"] != "none" else ""
            lines.append(f"  {finding['state']} {finding['check']}{key}: {finding['found']}{action}")
    return "\n".join(lines) + "\n"
