# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/etc/nccl.conf and the files of the environment: read as NCCL and the shell read them, changed in our block alone.

NCCL (src/misc/param.cc, setEnvFile): a line that begins with ``#`` is a comment; of every other the name is all before
the first ``=`` and the value all behind it, white space and carriage return included. Nothing that is set is set
again: the process's environment goes before ``~/.nccl.conf``, that before ``/etc/nccl.conf``, and a line before those
behind it.
"""

from __future__ import annotations

import re
import shlex
import typing as t

NCCL_CONF = "/etc/nccl.conf"
BEGIN = "# BEGIN gpufleet.pytorch.topology, made by its variables; lines outside are yours and go first"
END = "# END gpufleet.pytorch.topology"
_BEGIN = BEGIN.split(",", 1)[0]
#: Its first line, and where there is an end before another beginning, all up to that.
_BLOCK = re.compile(rf"^{_BEGIN}[^\n]*(?:\n(?:(?!{_BEGIN})[^\n]*\n)*?{END}[^\n]*)?(?:\n|$)", re.MULTILINE)
#: Of a value that NCCL reads from a file.
MAX_VALUE = 1022
#: What people do not see around a name; NCCL takes it for a part of it.
BLANK = " \t\r\f\v\ufeff"

#: Names of PyTorch's that were renamed in torch 2.2 (pytorch PR 114077, 114880); None where nothing reads the name.
RENAMED: t.Mapping[str, t.Optional[str]] = {
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING": "TORCH_NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
    "ENABLE_NCCL_HEALTH_CHECK": "TORCH_ENABLE_NCCL_HEALTH_CHECK",
    "NCCL_TIMEOUT": None,
}
#: A name where it is assigned: at a line's beginning, behind export, env, a semicolon, a quote.
_ASSIGNED = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)=")
_WORD = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Assignment(t.NamedTuple):
    """A variable in a file; ``line`` counts from 1."""

    line: int
    name: str
    value: str


class Merged(t.NamedTuple):
    """A file with our block in it, and the user's lines that go before a line of ours, which is left out."""

    text: str
    kept: t.List[t.Tuple[Assignment, str]]


def of_nccl(text: str) -> t.List[Assignment]:
    """The assignments of nccl.conf, our own block's included."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.append(Assignment(number, name, value))
    return found


def of_shell(text: str) -> t.List[Assignment]:
    """The assignments of a file for a shell, of /etc/environment, or of a job script; comments are none."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for match in _ASSIGNED.finditer(line):
            found.append(Assignment(number, match[1], _value(line[match.end() :])))
    return found


def _value(rest: str) -> str:
    match = re.match(r"\"([^\"]*)\"|'([^']*)'|([^\s;&|\"']*)", rest)
    return next((part for part in match.groups() if part is not None), "") if match else ""


def without_block(text: str) -> t.Tuple[str, int]:
    """The text without what is ours, and where that was (a character, -1 for nowhere).

    A block whose end is gone is only its first line: what follows may be the user's.
    """
    at = -1
    rest = text
    while True:
        match = _BLOCK.search(rest)
        if match is None:
            return rest, at
        rest = rest[: match.start()] + rest[match.end() :]
        at = match.start() if at < 0 else at


def merge(text: str, wanted: t.Mapping[str, str]) -> Merged:
    """nccl.conf with ``wanted`` in our block. A variable that a line of the user's sets stays the user's.

    Raises ValueError where the file is no text of bytes, as UTF-16 is none.
    """
    if "\0" in text:
        raise ValueError(
            f"{NCCL_CONF} holds zero bytes (UTF-16?), of which NCCL reads nothing; write it as plain text, for example"
            f" with iconv -f UTF-16 -t ASCII; nothing was changed"
        )
    rest, at = without_block(text)
    theirs: t.Dict[str, Assignment] = {}
    for one in of_nccl(rest):
        theirs.setdefault(one.name.strip(BLANK), one)
    kept = [(theirs[name], value) for name, value in wanted.items() if name in theirs]
    ours = {name: value for name, value in wanted.items() if name not in theirs}
    if not ours:
        return Merged(rest, kept)
    block = "".join(f"{line}\n" for line in (BEGIN, *(f"{name}={value}" for name, value in ours.items()), END))
    if at < 0:
        at = len(rest)
    before = rest[:at]
    if before and not before.endswith("\n"):
        before += "\n"
    return Merged(before + block + rest[at:], kept)


def profile(wanted: t.Mapping[str, str]) -> str:
    """A file for /etc/profile.d with these variables; one that is set already stays as it is."""
    lines = [f'[ -n "${{{name}+set}}" ] || export {name}={shlex.quote(value)}' for name, value in wanted.items()]
    return "".join(f"{line}\n" for line in ("# Written by the role gpufleet.pytorch.topology", *lines))


def replace(text: str, shell: bool) -> str:
    """The text with every renamed variable that it sets under its new name; those without a new one stay."""
    if not shell:
        lines = text.split("\n")
        for one in of_nccl(text):
            new = RENAMED.get(one.name)
            if new:
                lines[one.line - 1] = f"{new}={one.value}"
        return "\n".join(lines)

    # Where the variable is set it is also used, exported and unset: the whole file keeps one name for it.
    assigned = {one.name for one in of_shell(text)}

    def renamed(match: t.Match[str]) -> str:
        return (RENAMED.get(match[0]) if match[0] in assigned else None) or match[0]

    return "".join(line if line.lstrip().startswith("#") else _WORD.sub(renamed, line)
                   for line in text.splitlines(keepends=True))  # fmt: skip


def refused(wanted: t.Mapping[str, t.Any]) -> t.List[str]:
    """Why variables of the user's cannot be written, nothing where they can."""
    found = []
    for name, value in wanted.items():
        text = "" if value is None else str(value)
        if not _NAME.match(name):
            found.append(f"{name!r} is no name of a variable")
        elif name in RENAMED:
            new = RENAMED[name]
            found.append(f"{name} is {new} since torch 2.2" if new else f"nothing reads {name}; set the timeout of"
                         " init_process_group")  # fmt: skip
        elif isinstance(value, (list, tuple, dict)):
            found.append(f"the value of {name} is no text")
        elif isinstance(value, bool):
            found.append(f'the value of {name} is a truth value of YAML, which nobody reads so: write "1" or "0"')
        elif any(ord(char) < 32 for char in text) or text != text.strip():
            found.append(f"the value of {name} has a line break or white space around it, which NCCL would take along")
        elif len(text) > MAX_VALUE:
            found.append(f"the value of {name} has more than {MAX_VALUE} characters")
    return found
