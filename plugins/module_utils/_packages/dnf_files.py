# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dnf reads beside its packages: the list of version locks, in which users write too, and repositories. Pure."""

from __future__ import annotations

import configparser
import re
import typing as t

#: Our blocks in the list of locks: the driver's version, and the packages that a plan holds beside it.
DRIVER, LIBRARIES = "driver", "libraries"
_ARCH = re.compile(r"\.(?:\*|noarch|x86_64|aarch64)$")


def split(version: str) -> t.Tuple[str, str]:
    """Epoch, "0" where there is none, and version-release."""
    epoch, _colon, rest = version.rpartition(":")
    return epoch or "0", rest


def lock(name: str, version: str) -> str:
    """The line that keeps a package at one version, in the form that ``dnf versionlock add`` writes."""
    epoch, rest = split(version)
    return f"{name}-{epoch}:{rest}.*"


def is_locked(name: str, version: str, text: str) -> bool:
    """Whether the list, ours and the user's, keeps the package at exactly this version. A pattern keeps a branch."""
    epoch, rest = split(version)
    exact = {f"{name}-{epoch}:{rest}"} | ({f"{name}-{rest}"} if epoch == "0" else set())
    lines = (line.strip() for line in text.splitlines())
    return any(_ARCH.sub("", line) in exact for line in lines if line and line[0] not in "#!")


def block(text: str, label: str) -> t.List[str]:
    """The lines of one of our blocks."""
    match = re.search(_block(label), text, re.MULTILINE | re.DOTALL)
    return match[1].splitlines() if match else []


def with_block(text: str, label: str, lines: t.Iterable[str]) -> str:
    """The list with our block in place of the old one, and every other line as it was; without lines no block."""
    rest = re.sub(_block(label), "", text, flags=re.MULTILINE | re.DOTALL)
    body = "".join(f"{line}\n" for line in sorted(set(lines)))
    if not body:
        return rest
    rest += "\n" if rest and not rest.endswith("\n") else ""
    return f"{rest}# gpufleet.pytorch {label}: begin\n{body}# gpufleet.pytorch {label}: end\n"


def _block(label: str) -> str:
    return rf"^# gpufleet\.pytorch {label}: begin\n(.*?)^# gpufleet\.pytorch {label}: end\n"


def repositories(text: str) -> t.Dict[str, t.Tuple[t.List[str], bool]]:
    """``{id: (addresses, enabled)}`` of a ``.repo`` file. Raises ValueError where it is none."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(" ".join(str(error).split())) from None
    return {
        name: (
            re.split(r"[\s,]+", parser[name].get("baseurl", "").strip()),
            parser[name].get("enabled", "1").strip().lower() not in ("0", "no", "false", "off"),
        )
        for name in parser.sections()
        if name != "main"
    }


def repository(name: str, url: str, key: str, signed: bool) -> str:
    """The text of our ``.repo`` file. ``signed``: the index has a signature, which then must be right."""
    return (
        f"# Written by gpufleet.pytorch\n[gpufleet-{name}]\nname=NVIDIA {name}\nbaseurl={url}\nenabled=1\ngpgcheck=1\n"
        f"repo_gpgcheck={int(signed)}\ngpgkey=file://{key}\n"
    )
