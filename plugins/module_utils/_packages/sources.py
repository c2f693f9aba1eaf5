# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where apt takes packages from: the entries of sources.list and of deb822 files, and what is missing in them. Pure."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

#: Debian's driver lies beside what it calls free.
COMPONENTS = ("contrib", "non-free", "non-free-firmware")
#: Last parts of the address of Debian's own archive, as mirrors keep them, and cloud images their lists of mirrors
#: (mirror+file:///etc/apt/mirrors/debian.list). Others use the component "main" too.
_DEBIAN = ("debian", "debian-security")


@dataclass(frozen=True)
class Entry:
    """One enabled source of binary packages: one address and suite with its components."""

    uri: str
    suite: str
    components: t.Tuple[str, ...]
    signed_by: str = ""


def parse_list(text: str) -> t.List[Entry]:
    """The entries of a file in the one-line form, ``deb [option=value] URI SUITE COMPONENT...``."""
    found = []
    for line in text.splitlines():
        match = re.match(r"^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)((?:\s+[^\s#]+)*)", line)
        if match:
            options = dict(re.findall(r"([\w-]+)=(\S+)", match[1] or ""))
            found.append(Entry(match[2], match[3], tuple(match[4].split()), options.get("signed-by", "")))
    return found


def parse_deb822(text: str) -> t.List[Entry]:
    """The entries of a ``.sources`` file. A key that is written into the file is kept as its text."""
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields: t.Dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and name:
                fields[name] += "\n" + line
            elif ":" in line:
                name, _colon, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        found += [
            Entry(uri, suite, tuple(fields.get("components", "").split()), fields.get("signed-by", ""))
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        ]
    return found


def missing_components(entries: t.Sequence[Entry], codename: str) -> t.List[Entry]:
    """Entries that, added, make Debian's archive whole: the same addresses and suites with the components they lack."""
    there: t.Dict[t.Tuple[str, str, str], t.Set[str]] = {}
    for entry in entries:
        uri = entry.uri.rstrip("/")
        suites = (codename, f"{codename}-updates", f"{codename}-security")
        if (
            re.sub(r"\.list$", "", uri.rsplit("/", 1)[-1]) in _DEBIAN
            and entry.suite.rstrip("/").split("/")[0] in suites
        ):
            there.setdefault((uri, entry.suite, entry.signed_by), set()).update(entry.components)
    return [
        Entry(uri, suite, tuple(name for name in COMPONENTS if name not in components), signed_by)
        for (uri, suite, signed_by), components in there.items()
        if "main" in components and not set(COMPONENTS) <= components
    ]


def deb822(entries: t.Sequence[Entry], comment: str) -> str:
    """The text of a ``.sources`` file with these entries."""
    stanzas = []
    for entry in entries:
        lines = ["Types: deb", f"URIs: {entry.uri}", f"Suites: {entry.suite}"]
        lines += [f"Components: {' '.join(entry.components)}"] if entry.components else []
        lines += [f"Signed-By: {entry.signed_by}"] if entry.signed_by else []
        stanzas.append("\n".join(lines) + "\n")
    return f"# {comment}\n" + "\n".join(stanzas)
