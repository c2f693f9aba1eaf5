# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a package index says of a release, and what lies inside its wheels, without downloading one.

The index is the one that pip is set up with. A listing is read in its JSON form (PEP 691, with sizes and times of
PEP 700); a wheel's metadata from beside it where the index serves that (PEP 658), else, and for other members, from the
wheel itself by ranges of bytes: the directory at its end, then the one member.
"""

from __future__ import annotations

import email.message
import email.parser
import functools
import io
import json
import os
import re
import ssl
import subprocess
import sys
import typing as t
import urllib.error
import urllib.parse
import urllib.request
import zipfile

JSON = "application/vnd.pypi.simple.v1+json"
BLOCK = 1 << 16
TIMEOUT_S = 60


class IndexProblem(Exception):
    """The index could not be asked, or its answer cannot be used; the text says which and what to do."""


class PipSettings(t.NamedTuple):
    """Address of the index and the file of certificates, "" for the system's."""

    index_url: str
    cert: str


def pip_settings() -> PipSettings:
    """Settings of this interpreter's pip: environment before files, pip's own default last."""
    listed = _pip("config", "list")
    found = dict(re.findall(r"^(\S+?)='(.*)'$", listed, re.MULTILINE))

    def setting(name: str) -> str:
        keys = (f":env:.{name}", f"install.{name}", f"global.{name}")
        return next((str(found[key]) for key in keys if key in found), "")

    url = setting("index-url")
    if not url:
        match = re.search(r"default\s+(https?://\S+?)\)", _pip("install", "--help"))
        if match is None:
            raise IndexProblem("pip names no index: set index-url in pip's configuration, or give --index-url")
        url = match.group(1)
    return PipSettings(url.rstrip("/"), setting("cert"))


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env={**os.environ, "COLUMNS": "400"}
    )
    if done.returncode:
        raise IndexProblem(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


class File(t.NamedTuple):
    """A wheel in the index's listing; ``uploaded`` is a date such as 2026-10-28, "" where the index does not say."""

    name: str
    url: str
    size: int
    uploaded: str
    requires_python: str
    has_metadata: bool

    @property
    def version(self) -> str:
        """Version in its file name."""
        return self.name.split("-")[1]

    @property
    def tags(self) -> tuple[str, str, str]:
        """Python, ABI and platform tag."""
        python, abi, platform = self.name[: -len(".whl")].split("-")[-3:]
        return python, abi, platform


class PackageIndex:
    """An index in its JSON form."""

    def __init__(self, settings: PipSettings) -> None:
        self.url = settings.index_url
        self._tls = ssl.create_default_context(cafile=settings.cert or None)

    def get(self, url: str, expected: int = 200, **headers: str) -> bytes:
        """Body of an answer with that status. Raises IndexProblem with the address and the reason."""
        if not url.startswith(("http://", "https://")):
            raise IndexProblem(f"{url}: not an address of the web; give an index with --index-url")
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, headers=headers),
                timeout=TIMEOUT_S,
                context=self._tls if url.startswith("https:") else None,
            ) as answer:
                if answer.status != expected:
                    raise IndexProblem(f"{url}: status {answer.status} instead of {expected}")
                return bytes(answer.read())
        except (urllib.error.URLError, OSError) as problem:
            raise IndexProblem(f"{url}: {problem}") from problem

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def wheels(self, project: str) -> list[File]:
        """Wheels of a project that were not withdrawn, in the index's order."""
        url = f"{self.url}/{project}/"
        try:
            files = json.loads(self.get(url, Accept=JSON))["files"]
        except (ValueError, KeyError) as problem:
            raise IndexProblem(f"{url}: no listing in the JSON form of PEP 691; give such an index") from problem
        return [
            File(
                name=entry["filename"],
                url=urllib.parse.urljoin(url, entry["url"]),
                size=int(entry.get("size") or 0),
                uploaded=str(entry.get("upload-time") or "")[:10],
                requires_python=entry.get("requires-python") or "",
                has_metadata=bool(entry.get("core-metadata")),
            )
            for entry in files
            if entry["filename"].endswith(".whl") and not entry.get("yanked")
        ]

    def metadata(self, wheel: File) -> email.message.Message:
        """Core metadata of a wheel."""
        if wheel.has_metadata:
            text = self.get(wheel.url + ".metadata").decode()
        else:
            text = self.read(wheel, lambda name: name.endswith(".dist-info/METADATA"))
        return email.parser.HeaderParser().parsestr(text)

    def read(self, wheel: File, wanted: t.Callable[[str], bool]) -> str:
        """Text of the one member whose name is wanted, "" where there is none."""
        archive = self._archive(wheel)
        names = [name for name in archive.namelist() if wanted(name)]
        return archive.read(names[0]).decode() if names else ""

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def _archive(self, wheel: File) -> zipfile.ZipFile:
        if not wheel.size:
            raise IndexProblem(f"{wheel.url}: the index states no size (PEP 700), so the wheel cannot be read in parts")
        return zipfile.ZipFile(io.BufferedReader(_Ranges(self, wheel), BLOCK))


class _Ranges(io.RawIOBase):
    """A remote file, read by ranges of bytes."""

    def __init__(self, index: PackageIndex, wheel: File) -> None:
        super().__init__()
        self._index, self._wheel, self._at = index, wheel, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._wheel.size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: t.Any) -> int:
        length = min(len(buffer), self._wheel.size - self._at)
        if length <= 0:
            return 0
        # Status 206: an index that knows no ranges would send the whole wheel.
        data = self._index.get(self._wheel.url, 206, Range=f"bytes={self._at}-{self._at + length - 1}")
        buffer[:length] = data
        self._at += length
        return length
