# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wanted of an environment: made from the Plan and the user's words, pure.

The Plan decides torch; the user may ask for more packages beside it, or give
a whole list with hashes (a lock), which is then installed exactly.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import typing as t
from dataclasses import dataclass

#: Packages whose version the Plan knows, because each torch release has its own.
COMPANIONS = ("torchvision", "torchaudio")


class EnvironmentFailure(Exception):
    """Something that keeps the environment from being as planned, said for a person."""


@dataclass(frozen=True)
class Wanted:
    """What the environment has to hold.

    ``requirements`` and ``constraints`` are pip's lines; ``version`` is
    torch's public version (``2.13.0``), ``variant`` its build (``cpu``,
    ``cu130``, empty where the Plan does not say); ``lock`` is the user's own
    list with hashes, which replaces ``requirements``, and ``lock_name`` the
    variable that it came from.
    """

    version: str
    variant: str
    requirements: t.Tuple[str, ...]
    constraints: t.Tuple[str, ...] = ()
    lock: t.Tuple[str, ...] = ()
    base_python: str = ""
    lock_name: str = "pytorch_lock"

    @property
    def key(self) -> str:
        """Changes whenever another environment is wanted; where the wheels come from does not count."""
        words = [self.version, self.variant, self.requirements, self.constraints, self.lock, self.base_python]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]

    @property
    def origin(self) -> str:
        """To be added where what a lock names could not be had: whose lines they are. Empty without a lock."""
        if not self.lock:
            return ""
        return (
            f"; these versions and hashes are those of {self.lock_name}: make that lock anew, or name the index that it"
            " was made from in pytorch_index_url"
        )

    @property
    def build(self) -> str:
        """Torch as a person says it: ``torch 2.13.0+cpu``."""
        return "torch " + self.version + (("+" + self.variant) if self.variant else "")


def canonical(name: str) -> str:
    """A project's name as the packaging specifications compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def redact(url: str) -> str:
    """The text with the passwords of the addresses in it blotted out."""
    return re.sub(r"(://[^/@:\s]*):[^/@\s]*@", r"\1:****@", url)


def same_version(one: str, other: str) -> bool:
    """Whether two spellings are one version (PEP 440 local labels may be spelt with ``-``, ``_`` or ``.``)."""
    return re.sub(r"[-_]", ".", one.lower()) == re.sub(r"[-_]", ".", other.lower())


def requirement_name(line: str) -> str:
    """The canonical project name that a requirement begins with, empty where there is none."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
    return canonical(found.group(1)) if found else ""


def wanted(
    plan: t.Mapping[str, t.Any],
    *,
    packages: t.Sequence[str] = (),
    lock: t.Sequence[str] = (),
    base_python: str = "",
) -> Wanted:
    """What a Plan and the user's words come to. Raises EnvironmentFailure where they do not fit together."""
    if plan.get("status", "ok") != "ok":
        raise EnvironmentFailure(
            "the plan of this host is a conflict, so there is nothing to install; run plan.yml to see the remedies"
        )
    torch = plan.get("torch") or {}
    version = str(torch.get("version") or "").partition("+")[0]
    if not version:
        raise EnvironmentFailure("the plan names no torch version (plan.torch.version); the role plan makes the plan")
    variant = str(torch.get("variant") or "")
    requirements = [str(torch.get("requirement") or "torch==" + version)]
    constraints = [
        f"{name}{specifier}" for name, specifier in sorted((torch.get("python_packages") or {}).items()) if specifier
    ]
    for package in packages:
        name = requirement_name(package)
        if not name:
            raise EnvironmentFailure(
                f"pytorch_packages: {package!r} is no requirement; write NAME or NAME==VERSION"
                + _said_json("pytorch_packages", package)
            )
        if name == "torch":
            raise EnvironmentFailure(
                f"pytorch_packages: {package!r}: the plan decides torch ({version}); ask for another version there"
            )
        if name in COMPANIONS and canonical(package.strip()) == name:
            if not torch.get(name):
                raise EnvironmentFailure(f"pytorch_packages: the plan knows no {name} for torch {version}")
            requirements.append(f"{name}=={torch[name]}")
        else:
            requirements.append(package.strip())
    # The role takes the lines of plan_lock, which travel in the plan, where pytorch_lock is empty.
    lock_name = "plan_lock" if lock and list(lock) == torch.get("wheels") else "pytorch_lock"
    return Wanted(
        version=version,
        variant=variant,
        requirements=tuple(requirements),
        constraints=tuple(constraints),
        lock=tuple(_checked_lock(lock, version, variant, lock_name)),
        base_python=base_python,
        lock_name=lock_name,
    )


def _said_json(name: str, word: str) -> str:
    """A hint where a list was given as ``-e NAME=[...]``, which is one text to Ansible."""
    if not word.strip().startswith(("[", "{")):
        return ""
    return f". A list on the command line has to be JSON: -e '{{\"{name}\": [...]}}'"


def _checked_lock(lock: t.Sequence[str], version: str, variant: str, name: str) -> t.List[str]:
    lines = [line.strip() for line in lock if line.strip() and not line.strip().startswith("#")]
    torch = ""
    for line in lines:
        if not re.match(r"[A-Za-z0-9._-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+$", line):
            raise EnvironmentFailure(
                f"{name}: {line!r} is not NAME==VERSION --hash=sha256:HASH, which every entry has to be"
                + _said_json(name, line)
            )
        if requirement_name(line) == "torch":
            torch = line.split("==", 1)[1].split()[0]
    if lines and not torch:
        raise EnvironmentFailure(f"{name}: torch is not in the list")
    if lines and mismatch(torch, None, version, variant):
        raise EnvironmentFailure(
            f"{name} holds torch {torch}, but the plan wants {version}{'+' + variant if variant else ''};"
            " make the lock anew, or ask for that torch in the plan"
        )
    return lines


def mismatch(found: str, cuda: t.Optional[str], version: str, variant: str) -> bool:
    """Whether a torch is another one than planned.

    ``found`` is its version with the local label if it has one; ``cuda`` is
    what it was built for (``13.0``, empty for none), None where that is not
    known yet. Builds without a label are told apart by ``cuda`` alone.
    """
    public, _plus, label = found.partition("+")
    if not same_version(public, version):
        return True
    if variant and label and not same_version(label, variant):
        return True
    return bool(variant) and cuda is not None and variant != build_variant(cuda)


def build_variant(cuda: str) -> str:
    """The variant of a build for this CUDA: ``13.0`` is ``cu130``, none is ``cpu``."""
    return "cu" + cuda.replace(".", "") if cuda else "cpu"


def default_venv(euid: int, environ: t.Mapping[str, str]) -> str:
    """Where the environment lies unless the user says: for all as root, else with the user's own data."""
    if euid == 0:
        return "/opt/gpufleet/venv"
    return os.path.join(_xdg(environ, "XDG_DATA_HOME", ".local/share"), "gpufleet", "venv")


def default_store(euid: int, environ: t.Mapping[str, str]) -> str:
    """Where finished wheels are kept unless the user says."""
    if euid == 0:
        return "/var/cache/gpufleet/wheels"
    return os.path.join(_xdg(environ, "XDG_CACHE_HOME", ".cache"), "gpufleet", "wheels")


def _xdg(environ: t.Mapping[str, str], name: str, fallback: str) -> str:
    # The XDG specification tells to ignore a relative path.
    value = environ.get(name, "")
    return value if os.path.isabs(value) else os.path.join(environ.get("HOME") or "/", fallback)
