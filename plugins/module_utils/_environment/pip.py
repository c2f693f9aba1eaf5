# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pip's command lines, environment, reports and complaints. Pure: nothing here starts a process or opens a connection.

pip, and not uv: every Python has it or can run it from its wheel, so nothing
has to be brought to a host, and it reads the settings that a machine already
has. Resolving takes seconds of an installation that is all download.

Sources: https://pip.pypa.io/en/stable/reference/installation-report/ and
https://pip.pypa.io/en/stable/topics/configuration/ (``PIP_CONFIG_FILE`` as
the null device switches every configuration file off; ``--isolated`` alone
leaves the system's on).
"""

from __future__ import annotations

import json
import os
import re
import typing as t
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit, urlunsplit

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.venv import Locked
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    Wanted,
    canonical,
    redact,
)

#: Seconds that pip waits for a silent server, and how often it tries again: to resolve is quick or hopeless,
#: while a download of gigabytes is worth patience.
RESOLVE_PATIENCE = ("--timeout", "15", "--retries", "1")
DOWNLOAD_PATIENCE = ("--timeout", "30", "--retries", "5")
#: Settings of a machine that decide which build of a package pip finds.
DECISIVE = ("index-url", "extra-index-url", "find-links", "no-index", "constraint", "pre", "prefer-binary")


@dataclass(frozen=True)
class Source:
    """Where wheels come from: an index (empty for none), the store, and whether the machine's own settings count."""

    index_url: str
    store: str
    isolated: bool = True

    def lines(self) -> t.List[str]:
        """As lines of a requirements file, so that a password in an address is in no process list."""
        lines = ["--find-links " + quoted(self.store)]
        if self.index_url:
            lines.append(("--index-url " if self.isolated else "--extra-index-url ") + self.index_url)
        elif self.isolated:
            lines.append("--no-index")
        return lines


def quoted(path: str) -> str:
    """A path as a requirements file needs it: its options are split like a shell's words."""
    return "'" + path.replace("'", "'\"'\"'") + "'" if re.search(r"[^\w@%+=:,./-]", path) else path


def environment(environ: t.Mapping[str, str], *, isolated: bool, tmp: str) -> t.Dict[str, str]:
    """The variables that pip runs with; isolated: none of pip's, and no configuration file."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("PYTHON") and not (isolated and name.upper().startswith("PIP_"))
    }
    if isolated:
        kept["PIP_CONFIG_FILE"] = os.devnull
    # pip writes half downloads to TMPDIR: there their growth can be seen, and what a kill leaves is found again.
    return {**kept, "TMPDIR": tmp, "LC_ALL": "C.UTF-8"}


def _pip(python: str, program: str, isolated: bool) -> t.List[str]:
    # ``program`` is the folder of the package pip: it need not be installed anywhere.
    return [python, "-I", program, *(["--isolated"] if isolated else [])]


COMMON = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--only-binary", ":all:")


def resolve_command(
    python: str, program: str, source: Source, *, requirements: str, report: str, cache: str
) -> t.List[str]:
    """Ask pip what it would install. Changes nothing; the base interpreter is asked, before there is an environment."""
    return [
        *_pip(python, program, source.isolated),
        "install",
        *COMMON,
        *RESOLVE_PATIENCE,
        "--dry-run",
        "--ignore-installed",
        "--cache-dir",
        cache,
        "--report",
        report,
        "-r",
        requirements,
    ]


def download_command(
    python: str, program: str, source: Source, *, requirements: str, into: str, cache: str
) -> t.List[str]:
    """Download the one wheel of a requirements file with a hash."""
    return [
        *_pip(python, program, source.isolated),
        "download",
        *COMMON,
        *DOWNLOAD_PATIENCE,
        "--no-deps",
        "--require-hashes",
        "--cache-dir",
        cache,
        "-d",
        into,
        "-r",
        requirements,
    ]


def install_command(python: str, program: str, *, requirements: str) -> t.List[str]:
    """Install from the store alone, whatever the machine's settings: every package has a hash by now."""
    return [
        *_pip(python, program, True),
        "install",
        *COMMON,
        "--no-cache-dir",
        "--require-hashes",
        "--no-warn-script-location",
        "-r",
        requirements,
    ]


def settings_command(python: str, program: str) -> t.List[str]:
    """Print the settings of pip that this machine has."""
    return [*_pip(python, program, False), "config", "list"]


def resolve_lines(wanted: Wanted, source: Source, constraints: str) -> t.List[str]:
    """The requirements file of a resolution; ``constraints`` is the path of a file with the Wanted's constraints."""
    lines = source.lines()
    if wanted.lock:
        return [*lines, "--require-hashes", *wanted.lock]
    if wanted.constraints:
        lines.append("--constraint " + quoted(constraints))
    return [*lines, *wanted.requirements]


def read_report(text: str) -> t.List[Locked]:
    """The packages of pip's installation report, by name. Raises EnvironmentFailure for what has no hash."""
    found = []
    for item in json.loads(text)["install"]:
        info = item.get("download_info", {})
        archive = info.get("archive_info", {})
        digest = archive.get("hashes", {}).get("sha256") or str(archive.get("hash", "")).partition("sha256=")[2]
        name = canonical(item["metadata"]["name"])
        if not digest:
            raise EnvironmentFailure(f"{name}: {redact(info.get('url', ''))} tells no SHA-256, so it is not installed")
        found.append(Locked(name, item["metadata"]["version"], (digest,), info.get("url", "")))
    return sorted(found, key=lambda package: package.name)


def read_lock(lines: t.Iterable[str]) -> t.List[Locked]:
    """The packages of lines ``NAME==VERSION --hash=sha256:HASH``, as Locked.line writes them."""
    found = []
    for line in lines:
        name, _equals, rest = line.partition("==")
        version, *hashes = rest.split()
        found.append(Locked(canonical(name.strip()), version, tuple(word.rpartition(":")[2] for word in hashes)))
    return found


def read_settings(text: str) -> t.Dict[str, str]:
    """The machine's settings that decide which build pip finds, of ``pip config list``'s lines.

    Names as a person can look for them: ``PIP_FIND_LINKS`` for a variable, ``find-links`` of a file otherwise.
    """
    found = {}
    for line in text.splitlines():
        match = re.match(r"([\w:-]+)\.([\w-]+)=(['\"])(.*)\3$", line.strip())
        if match and match.group(2) in DECISIVE:
            name = match.group(2)
            if match.group(1) == ":env:":
                name = "PIP_" + name.upper().replace("-", "_")
            found[name] = redact(match.group(4))
    return found


def said_settings(settings: t.Mapping[str, str]) -> str:
    """The settings in one line for a person; empty where there are none."""
    return ", ".join(f"{name} = {value}" for name, value in sorted(settings.items()))


def bringer(url: str, settings: t.Mapping[str, str]) -> str:
    """The setting through which a wheel at this address came, all that could have where its address does not say."""
    path = unquote(urlsplit(url).path)
    for name, value in sorted(settings.items()):
        for word in value.split():
            place = unquote(urlsplit(word).path if "://" in word else word).rstrip("/")
            root = re.sub(r"/simple$", "", place)
            same_host = "://" not in word or urlsplit(word).hostname == urlsplit(url).hostname
            if root and same_host and path.startswith(root + "/"):
                return f"{name} = {word}"
    return said_settings(settings)


def password_of(url: str) -> str:
    """The password in an address, empty where it has none."""
    return unquote(urlsplit(url).password or "")


def page(index_url: str) -> str:
    """An address of the index that every index answers, to see whether it can be reached: the page of torch."""
    parts = urlsplit(index_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/torch/", parts.query, ""))


def complaint(output: str) -> str:
    """What pip says went wrong: its error lines with what is set off under them, or its last words."""
    errors: t.List[str] = []
    heading = False
    for line in output.splitlines():
        text = line.strip()
        if text.startswith("ERROR:") or text == "The conflict is caused by:":
            errors.append(text[len("ERROR:") :].strip() if text.startswith("ERROR:") else text)
            heading = True
        elif heading and text and line[0].isspace():
            errors[-1] += " " + " ".join(text.split())
        elif text:
            heading = False
    last = [line.strip() for line in output.splitlines() if line.strip()][-3:]
    return redact("; ".join(errors or last) or "pip said nothing")


def sizes_told(output: str) -> str:
    """The error, and the wheels that pip said it downloads, with their sizes."""
    told = re.findall(r"^\s*Downloading (\S+\.whl \([\d.]+ [kMG]?B\))", output, re.M)
    return complaint(output) + (f" while downloading {', '.join(told[-3:])}" if told else "")


def resolution_failure(output: str, wanted: Wanted, source: Source, python: str, settings: t.Mapping[str, str]) -> str:
    """One line on why there is no resolution: what is needed, what was found, where, and what to do."""
    where = redact(source.index_url) or "no index"
    found = re.search(r"satisfies the requirement torch\b.*from versions: ([^)]*)\)", output)
    refused = re.search(r"Package 'torch' requires a different Python: \S+ not in '([^']+)'", output)
    text = complaint(output)
    if found or refused:
        others = found.group(1) if found else ""
        text = (
            f"{wanted.build} has no wheel for {python} at {where}"
            + ("" if source.isolated else " and in this host's own pip settings")
            + (f"; it says Requires-Python {refused.group(1)}" if refused else "")
            + {"": "", "none": "; found: no torch at all"}.get(others, f"; found for this Python: {_last(others)}")
            + "; choose another pytorch_base_python, another torch in the plan, or another pytorch_index_url"
        )
    text += wanted.origin
    if settings:
        text += f" (this host's pip settings: {said_settings(settings)})"
    return text


def _last(versions: str, count: int = 5) -> str:
    words = [word.strip() for word in versions.split(",")]
    return ", ".join((["..."] if len(words) > count else []) + words[-count:])
