# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of packages needs, from an empty system on, as one archive that a host installs from alone.

    FILES              every package of the closure
    Packages           of Debian's: the index, written here: what dpkg-deb says of each file, with its size and SHA-256
    bundle.list        of Debian's: the repository, as a source of apt
    whole              empty and last: what is unpacked as far as here is all there

The closure is apt's or dnf's own: it solves the change for a host on which nothing is installed, so that any host of
the system finds in it what it lacks. What is downloaded is held against the signatures of its repositories, NVIDIA's by
the fingerprint of its key; the archive is held against the manifest. dnf reads the packages themselves, so that
theirs is without an index.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import LIST, Apt, PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result

#: Where the archive is unpacked on a host: a folder for each, by its digest.
PLACE = "/var/lib/gpufleet/packages"
#: Says that a folder holds all of its archive.
WHOLE = "whole"
#: Fields that say where a file lies, and are ours.
_OWN = re.compile(r"^(Filename|Size|MD5sum|SHA1|SHA256|SHA512):.*\n", re.MULTILINE)


def download(apt: Apt, names: t.Sequence[str], folder: str) -> t.List[str]:
    """Download packages and all that they need; the files' paths, sorted. Raises PackageFailure with apt's words."""
    status = os.path.join(folder, "status")
    archives = os.path.join(folder, "archives")
    os.makedirs(os.path.join(archives, "partial"), exist_ok=True)
    with open(status, "w", encoding="utf-8"):
        pass
    argv = ["apt-get", *apt.options(), "-o", "Dir::State::status=" + status, "-o", "Debug::NoLocking=true"]
    argv += ["-o", f"Dir::Cache::archives={archives}", "--quiet", "--yes", "--no-install-recommends"]
    result = apt.runner.run([*argv, "--download-only", "install", *names], limit=apt.limit)
    problem = apt.problem(result)
    if problem:
        raise PackageFailure(f"apt-get --download-only install {' '.join(names)}: {problem}")
    # A source on the disk is used from where it lies.
    here = [os.path.join(archives, name) for name in os.listdir(archives) if name.endswith(".deb")]
    uris = apt.runner.run([*argv, "--print-uris", "install", *names], limit=apt.limit)
    return sorted({*here, *local(uris.out)})


def local(text: str) -> t.List[str]:
    """The files of ``apt-get --print-uris`` on this machine: of lines ``'file:/srv/a_1.deb' a_1.deb 12 SHA256:...``."""
    return [
        match[1] for match in (re.match(r"^'file:(?://)?(/[^']+\.deb)'", line) for line in text.splitlines()) if match
    ]


def stanza(control: str, name: str, size: int, sha256: str) -> str:
    """The entry of a package in the index, of its own control file. Raises PackageFailure where that is none."""
    if not re.search(r"^Package: \S", control, re.MULTILINE):
        raise PackageFailure(f"{name} is no package of Debian: its control file has no Package")
    return f"{_OWN.sub('', control.strip() + chr(10))}Filename: ./{name}\nSize: {size}\nSHA256: {sha256}\n\n"


def index(paths: t.Iterable[str], control: t.Callable[[str], Result]) -> str:
    """The index of package files; ``control`` gives what dpkg-deb prints of one."""
    text = ""
    for path in paths:
        told = control(path)
        if told.problem:
            raise PackageFailure(f"{path} cannot be read by dpkg-deb: {told.problem}")
        text += stanza(told.out, os.path.basename(path), os.path.getsize(path), _sha256(path))
    return text


def source(place: str) -> str:
    """The archive that is unpacked at ``place``, as a source of apt."""
    return f"deb [trusted=yes] file:{place} ./\n"


def pack(paths: t.Sequence[str], folder: str, text: str = "") -> t.Tuple[str, str]:
    """Write the archive, with its index ``text``, into the folder; its path, and the digest that names its place."""
    told = text or "".join(f"{_sha256(path)} {os.path.basename(path)}\n" for path in paths)
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    made = {"Packages": text, LIST: source(f"{PLACE}/{digest}")} if text else {}
    archive = os.path.join(folder, f"{digest}.tar")
    with tarfile.open(archive, "w") as tar:
        for name, content in made.items():
            _add(tar, folder, name, content)
        for path in paths:
            tar.add(path, os.path.basename(path), filter=_plain)
        _add(tar, folder, WHOLE, "")
    return archive, digest


def _add(tar: tarfile.TarFile, folder: str, name: str, content: str) -> None:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(content)
    tar.add(path, name, filter=_plain)


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def _plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, readable by all, and of no date, so that the same packages make the same archive."""
    item.uid = item.gid = 0
    item.uname = item.gname = "root"
    item.mode, item.mtime = 0o644, 0
    return item
