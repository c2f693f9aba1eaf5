# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a wheel file tells, and a wheel of pip made from an installed one.

Sources: binary distribution format (name of the file, dist-info, RECORD) at
https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import typing as t
import zipfile

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import canonical

#: The first pip that can resolve without installing and report what it would install.
PIP_MINIMUM = (22, 2)
_CHUNK = 1 << 20
_BLOCK = 4096
#: Halves of its size that a source file takes with its bytecode (measured: 2.5 times).
_WITH_BYTECODE = 5


def sha256(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


@functools.lru_cache(maxsize=None)
def _known_sha256(path: str, _size: int, _changed: int) -> str:
    # Gigabytes are read once a run.
    return sha256(path)


def installed_bytes(path: str) -> int:
    """How many bytes the wheel's files take on a disk, in blocks, with the bytecode that pip makes of them.

    For torch 2.13.0+cpu and all it needs this comes to 999 MB, where the environment took 992 MB without pip.
    """
    with zipfile.ZipFile(path) as archive:
        return sum(
            -(-item.file_size // _BLOCK) * _BLOCK * (_WITH_BYTECODE if item.filename.endswith(".py") else 2) // 2
            for item in archive.infolist()
        )


def torch_build(path: str) -> t.Tuple[str, t.Optional[str]]:
    """Version and CUDA (empty for none, None where it is not told) that a torch wheel was built with.

    Builds on a common index carry no local label, so the file's name does not tell them apart.
    """
    with zipfile.ZipFile(path) as archive:
        return parse_version_py(archive.read("torch/version.py").decode("utf-8", "replace"))


def parse_version_py(text: str) -> t.Tuple[str, t.Optional[str]]:
    """Version and CUDA of the text of ``torch/version.py``, which every build of torch carries."""
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.M)
    cuda = re.search(r"^cuda\b[^=\n]*=\s*(?:['\"]([^'\"]+)['\"]|None)", text, re.M)
    return (version.group(1) if version else "", (cuda.group(1) or "") if cuda else None)


def pip_version(path: str) -> t.Tuple[int, ...]:
    """The version in the name of a wheel of pip, ``(0,)`` where it is none."""
    found = re.match(r"pip-(\d+(?:\.\d+)*)-py3-none-any\.whl$", os.path.basename(path))
    return tuple(int(part) for part in found.group(1).split(".")) if found else (0,)


def requires_python(path: str) -> t.Tuple[int, ...]:
    """The lowest Python that a wheel of pip says it needs, ``(3,)`` where it does not say."""
    with zipfile.ZipFile(path) as archive:
        name = next(item for item in archive.namelist() if re.match(r"pip-[^/]+\.dist-info/METADATA$", item))
        found = re.search(r"^Requires-Python: >=\s*([\d.]+)", archive.read(name).decode("utf-8", "replace"), re.M)
    return tuple(int(part) for part in found.group(1).split(".")) if found else (3,)


def best_pip(paths: t.Iterable[str], python: t.Sequence[int]) -> str:
    """The newest wheel of pip that is new enough for us and that this Python runs; empty where none is."""
    usable = [
        path
        for path in paths
        if pip_version(path) >= PIP_MINIMUM and os.path.isfile(path) and requires_python(path) <= tuple(python)
    ]
    return max(usable, key=pip_version, default="")


def wheel_of_installed(package: str, folder: str) -> str:
    """Write a wheel of the pip whose package folder is ``package`` into ``folder``; empty where it cannot be made.

    A Python has pip as a wheel (ensurepip) or installed, or not at all: so one form of both serves everywhere.
    """
    site = os.path.dirname(package)
    infos = [name for name in os.listdir(site) if re.match(r"pip-[\d.]+\.dist-info$", name)]
    if len(infos) != 1:
        return ""
    info = infos[0]
    path = os.path.join(folder, info[: -len(".dist-info")] + "-py3-none-any.whl")
    records: t.List[str] = []
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(data)}")

        for where, folders, names in os.walk(package):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                full = os.path.join(where, name)
                with open(full, "rb") as stream:
                    add(os.path.relpath(full, site), stream.read())
        for name in ("METADATA", "entry_points.txt"):
            if os.path.isfile(os.path.join(site, info, name)):
                with open(os.path.join(site, info, name), "rb") as stream:
                    add(f"{info}/{name}", stream.read())
        add(f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: gpufleet\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "\n".join([*records, f"{info}/RECORD,,", ""]))
    os.replace(path + ".part", path)
    return path


def find_in_store(store: str, name: str, digests: t.Collection[str]) -> str:
    """The finished wheel of project ``name`` in the store with one of these SHA-256 sums; empty where none is."""
    try:
        files = sorted(os.listdir(store))
    except FileNotFoundError:
        return ""
    for file in files:
        if file.endswith(".whl") and canonical(file.split("-", 1)[0]) == name:
            path = os.path.join(store, file)
            stat = os.stat(path)
            if _known_sha256(path, stat.st_size, stat.st_mtime_ns) in digests:
                return path
    return ""
