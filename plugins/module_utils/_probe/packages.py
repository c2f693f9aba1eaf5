# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which package owns a file.

dpkg's database is text and is read as such: ``dpkg -S`` reads every list of
the system and takes longer than all the rest of a probe. rpm is asked, once
for all files.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

DPKG = "/var/lib/dpkg"
#: Packages that can own a driver's files begin so, or hold one of these words.
_DRIVER_PACKAGE = re.compile(r"nvidia|^libcuda|^libnv|^cuda|^linux-modules|^linux-(?:objects|signatures)")
#: Folders that are links to their counterpart under /usr on a merged system; a database may know either name.
_MERGED = ("/lib/", "/lib64/", "/bin/", "/sbin/")


def owners(runner: Runner, paths: t.Iterable[str]) -> t.Dict[str, str]:
    """``{path: "name version"}`` of the paths that a package owns.

    Raises OSError with rpm's words where rpm is there and does not answer:
    "owned by nobody" must not be said of what could not be asked.
    """
    wanted = sorted(set(paths))
    if not wanted:
        return {}
    if runner.exists(f"{DPKG}/status"):
        return _dpkg(runner, wanted)
    if runner.which("rpm"):
        return _rpm(runner, wanted)
    return {}


def _dpkg(runner: Runner, paths: t.Sequence[str]) -> t.Dict[str, str]:
    names = {alias: path for path in paths for alias in _aliases(path)}
    found: t.Dict[str, str] = {}
    for entry in runner.listdir(f"{DPKG}/info"):
        if not entry.endswith(".list") or not _DRIVER_PACKAGE.search(entry):
            continue
        lines = (runner.read(f"{DPKG}/info/{entry}") or "").split("\n")
        for line in lines:
            if line in names:
                found[names[line]] = entry[: -len(".list")].partition(":")[0]
    versions = _dpkg_versions(runner, set(found.values()))
    return {path: f"{name} {versions.get(name, '')}".strip() for path, name in found.items()}


def _dpkg_versions(runner: Runner, names: t.Set[str]) -> t.Dict[str, str]:
    if not names:
        return {}
    status = runner.read(f"{DPKG}/status") or ""
    versions = {}
    for name in names:
        match = re.search(rf"^Package: {re.escape(name)}\n(?:.+\n)*?Version: (\S+)", status, re.MULTILINE)
        if match:
            versions[name] = match.group(1)
    return versions


def _rpm(runner: Runner, paths: t.Sequence[str]) -> t.Dict[str, str]:
    # One line a path and in their order; rpm answers 1 where a path is nobody's.
    result = runner.run(["rpm", "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n"] + list(paths))
    lines = [line for line in result.out.split("\n") if line]
    if result.timed_out or result.missing or len(lines) != len(paths):
        raise OSError(f"rpm -qf: {result.problem or 'an answer with another number of lines'}")
    return {
        path: line for path, line in zip(paths, lines) if "not owned by any package" not in line and "error" not in line
    }


def _aliases(path: str) -> t.List[str]:
    aliases = [path]
    for prefix in _MERGED:
        if path.startswith(prefix):
            aliases.append("/usr" + path)
        if path.startswith("/usr" + prefix):
            aliases.append(path[len("/usr") :])
    return aliases
