# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker's and containerd's own settings, which belong to a user: what is ours goes in, every other byte stays. Pure.

``nvidia-ctk`` writes such a file anew: keys in another order, comments gone.
"""

from __future__ import annotations

import fnmatch
import json
import re
import typing as t

#: What ``nvidia-ctk runtime configure`` makes of Docker's settings, from its first release on.
RUNTIME: t.Dict[str, t.Any] = {"args": [], "path": "nvidia-container-runtime"}
#: What containerd's settings have to import for the file that nvidia-ctk makes beside them.
IMPORT = "/etc/containerd/conf.d/*.toml"
_NAMED = f'"nvidia": {json.dumps(RUNTIME)}'
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]*version[ \t]*=[ \t]*([23])[ \t]*(?:#.*)?(?:\r?\n|\Z)", re.MULTILINE)
_IMPORTS = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[", re.MULTILINE)
_BLANK = re.compile(r"[ \t\r\n]*")


def decoded(data: bytes) -> str:
    """The text of a file. Raises ValueError for what its reader does not take either."""
    if data.startswith(b"\xef\xbb\xbf"):
        raise ValueError("begins with a byte order mark, with which it is not read: save it as UTF-8 without one")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start})") from None


def docker(text: str) -> t.Dict[str, t.Any]:
    """Docker's settings. Raises ValueError where they are not one JSON object, with which Docker does not start."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1].strip()
        comment = "; JSON knows no comments" if line.startswith(("//", "#", "/*")) else ""
        raise ValueError(f"is no JSON in line {error.lineno} ({error.msg}{comment})") from None
    if not isinstance(found, dict) or not isinstance(found.get("runtimes", {}), dict):
        raise ValueError("is no JSON object, or its runtimes are none")
    return found


def _once(pairs: t.Sequence[t.Tuple[str, t.Any]]) -> t.Dict[str, t.Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        raise ValueError(f"has {', '.join(sorted({name for name in names if names.count(name) > 1}))} twice")
    return found


def with_runtime(text: str) -> str:
    """Docker's settings with the runtime nvidia. Raises ValueError where they are no settings of Docker's."""
    settings = docker(text)
    if not settings:
        return json.dumps({"runtimes": {"nvidia": RUNTIME}}, indent=2) + "\n"
    place, inner = _inside(text, "runtimes")
    more = bool(settings.get("runtimes")) if inner else True
    named = _NAMED if inner else f'"runtimes": {{{_NAMED}}}'
    lead = t.cast("re.Match[str]", _BLANK.match(text, place))[0]
    return text[:place] + (f"{lead}{named}," if more else named) + text[place:]


def _inside(text: str, name: str) -> t.Tuple[int, bool]:
    """Behind which brace something goes in: that of a member that is an object, else that of the whole."""

    def skip(at: int) -> int:
        return t.cast("re.Match[str]", _BLANK.match(text, at)).end()

    decoder = json.JSONDecoder()
    first = at = skip(0) + 1
    while True:
        at = skip(at)
        if text[at] in ",":
            at = skip(at + 1)
        if text[at] == "}":
            return first, False
        key, at = decoder.raw_decode(text, at)
        at = skip(skip(at) + 1)  # behind the colon
        if key == name:
            return at + 1, True
        _value, at = decoder.raw_decode(text, at)


def imports(text: str, path: str) -> bool:
    """Whether containerd's settings import a file."""
    table = _TABLE.search(text)
    known = _IMPORTS.search(text[: table.start()] if table else text)
    listed = text[known.end() :].partition("]")[0] if known else ""
    return any(fnmatch.fnmatchcase(path, glob) for _quote, glob in re.findall(r"([\"'])(.*?)\1", listed))


def with_import(text: str) -> str:
    """containerd's settings with the import of our folder.

    Raises ValueError for a form to which a line cannot be added without writing it anew.
    """
    if '"""' in text or "'''" in text:
        raise ValueError(f"has texts of several lines: add {IMPORT} to its imports")
    if imports(text, IMPORT.replace("*", "99-nvidia")):
        return text
    table = _TABLE.search(text)
    head = text[: table.start()] if table else text
    known = _IMPORTS.search(head)
    if known:
        return f'{text[: known.end()]}"{IMPORT}", {text[known.end() :]}'
    version = _VERSION.search(head)
    if version is None:
        raise ValueError(
            "is of form 1, to which nothing can be added beside it: write it anew with containerd config migrate"
        )
    end = "" if version[0].endswith("\n") else "\n"
    return f'{text[: version.end()]}{end}imports = ["{IMPORT}"]\n{text[version.end() :]}'
