# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpufleet-gate: is this host still what was proved? 0 ready, 1 not ready, 2 could not tell."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _words as words
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict

RUN_DIR = "/run/gpufleet"
#: Seconds until an answer: of a reading, of a look, of a proof.
READ_LIMIT = 2
LOOK_LIMIT = 20
#: A proof's own limits end it before: torch's import, the products, all devices together.
PROVE_LIMIT = 900
USAGE = """usage: gpufleet-gate [--fresh [--within=SECONDS] | --prove] [--json]

Says whether this host is ready to train: 0 ready, 1 not ready, 2 could not tell.
Without an option it reads the last verdict of gpufleet-gate.timer and looks at nothing.

  --fresh   look again, now (as root, this becomes the verdict)
  --within=SECONDS  look only where the last look is older, did not say ready, or is of another record
  --prove   look, then compute on every device, as verify.yml does, and record what was proved (root)
  --json    the verdict as JSON
"""
#: This gate is not the one that is asked for.
ANOTHER = 3


def main(argv: t.Sequence[str], installed: t.Mapping[str, t.Any]) -> int:
    """The exit status. ``installed``: what this gate was built with (archive.py).

    It says "not ready" only of a verdict: what goes wrong here is "could not tell".
    """
    # Else a lock or a verdict would be opened as the output that somebody has closed.
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass
    try:
        return _main(argv, installed)
    except Exception as error:  # pylint: disable=broad-except
        _complain(f"{type(error).__name__}: {error}")
        return verdict.EXITS["unknown"]


def _main(argv: t.Sequence[str], installed: t.Mapping[str, t.Any]) -> int:
    if argv and not argv[0].startswith("-"):
        from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import commands

        return commands.run(argv, RUN_DIR)
    options = set(argv)
    if options & {"-h", "--help"}:
        _tell(USAGE)
        return 0
    # For drift.yml: whether this is the gate of that collection, for that folder, run as root.
    wanted = [option[len("--only=") :] for option in options if option.startswith("--only=")]
    within = [option[len("--within=") :] for option in options if option.startswith("--within=")]
    options -= {*(f"--only={value}" for value in wanted), *(f"--within={value}" for value in within)}
    wrong = options - {"--fresh", "--prove", "--json"}
    if wrong:
        _complain(f"{' '.join(sorted(wrong))} is no option\n{USAGE}")
        return verdict.EXITS["unknown"]
    if within and ("--fresh" not in options or len(within) > 1 or not re.match(r"[0-9]{1,7}\Z", within[0])):
        _complain(f"--within={within[0]}: a number of seconds is needed, and --fresh beside it")
        return verdict.EXITS["unknown"]
    if "--prove" in options and os.geteuid() != 0:
        _complain("--prove needs root, whose record it writes")
        return verdict.EXITS["unknown"]
    if wanted and (os.geteuid() != 0 or wanted != [f"{installed['build']}:{installed['directory']}"]):
        return ANOTHER
    standing = _standing(installed, int(within[0])) if within else None
    if standing:
        made = standing
    elif options & {"--fresh", "--prove"}:
        made = _fresh(installed, prove="--prove" in options)
    else:
        _answer_within(READ_LIMIT)
        made = verdict.read(os.path.join(RUN_DIR, verdict.FILE), verdict.now())
    _tell(json.dumps(made) + "\n" if "--json" in options else _words(made))
    return verdict.EXITS[made["state"]]


def _tell(text: str) -> None:
    """The exit status is the answer: an output that is closed, full or of few characters changes nothing of it."""
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, AttributeError) as error:
        if sys.stdout is not None:
            _complain(f"the answer cannot be written: {error}")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest when it ends


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"gpufleet-gate: {text.rstrip()}\n".encode("utf-8", "backslashreplace"))


def _answer_within(seconds: float) -> None:
    """A file system that hangs or an output that nobody reads must not hold a job's start."""

    import select

    def late(_number: int, _frame: t.Any) -> None:
        if select.select([], [2], [], 0)[1]:  # it can be the same pipe
            _complain("no answer in time")
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
        looker = _looker(installed)  # before the look: what changes meanwhile is looked at again
        seen = look.look(Runner(), installed["directory"])
        found = seen.findings
        if prove:
            from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import prove as proof

            found = proof.prove(seen, installed["directory"])
        made = look.judged(found, verdict.now(), installed["valid_for"])
        return {**made, "identity": identity.of(seen.observed, seen.environment), "looked_by": looker}

    if os.geteuid() != 0:
        return once.run(work, None, "look", time.monotonic() + LOOK_LIMIT)
    # Stopped, it takes its child along, and that one its workers.
    signal.signal(signal.SIGTERM, _stopped)
    try:
        os.makedirs(RUN_DIR, mode=0o755, exist_ok=True)
        others = verdict.shared(RUN_DIR, 0)  # what is remembered there is believed
        if others:
            return verdict.unknown("look-ended", others, "a folder that root alone can change")
        if prove:
            return once.answer(RUN_DIR, "prove", work, PROVE_LIMIT)
        return once.answer(RUN_DIR, "look", work, LOOK_LIMIT)
    except OSError as error:
        found = f"the look could not begin in {RUN_DIR}: {error}"
        return verdict.unknown("look-ended", found, "a folder that root can write, and a process more")


def _stopped(_number: int, _frame: t.Any) -> None:
    raise SystemExit(verdict.EXITS["unknown"])


def _standing(installed: t.Mapping[str, t.Any], seconds: int) -> t.Optional[verdict.Verdict]:
    """The last verdict, where it is of this gate, of these records, says ready and is young enough."""
    at = verdict.now()
    made = verdict.read(os.path.join(RUN_DIR, verdict.FILE), at)
    if made["state"] != "ready" or made.get("looked_by") != _looker(installed) or "uptime" not in made:
        return None
    age = at.uptime - made["uptime"]
    return verdict.standing(made, age) if age <= seconds else None


def _looker(installed: t.Mapping[str, t.Any]) -> str:
    """Which code looked, and by which records: every file of the folder as it is now."""
    files = []
    with contextlib.suppress(OSError), os.scandir(installed["directory"]) as found:
        for one in found:
            held = one.stat(follow_symlinks=os.path.exists(one.path))  # a link to nothing hides no other file
            files.append(f"{one.name}:{held.st_ino}:{held.st_mtime_ns}:{held.st_ctime_ns}:{held.st_size}")
    return " ".join([f"{installed['build']}:{installed['directory']}", *sorted(files)])


def _clean() -> None:
    """Forget what decides where a program takes its code from. What speaks of hidden GPUs stays: it can only warn."""
    for name in [name for name in os.environ if name.startswith(("LD_", "PYTHON", "GCONV_", "GLIBC_"))]:
        del os.environ[name]


def _words(made: verdict.Verdict) -> str:
    """The state, and each Finding that is not fine, a line each."""
    loud = [words.line(finding) for finding in made["findings"] if finding["state"] in ("fail", "unknown", "warn")]
    return "\n  ".join([made["state"].replace("_", " "), *loud]) + "\n"
