# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wheels of a plan for a machine that is not this one: exact versions and SHA-256 hashes, by pip's own resolver.

pip answers for another Python and platform, but evaluates markers such as ``platform_machine == "x86_64"`` for the
machine it runs on (pypa/pip#11664); here it is started with the target's. Nothing is installed. A pip of 25 or newer
downloads no wheel whose metadata the index serves or whose parts it can read; an older one downloads them and forgets.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import typing as t
import urllib.parse
import urllib.request

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.pip import complaint
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.lock import LockProblem, Plan

TIMEOUT_S = 1800
#: Runs pip in a process whose markers are those of the target, given as JSON in the first argument.
LAUNCHER = """
import json, runpy, sys
import pip._vendor.packaging.markers as markers
target, own = json.loads(sys.argv.pop(1)), markers.default_environment
markers.default_environment = lambda: {**own(), **target}
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

Run = t.Callable[[t.Sequence[str], t.Mapping[str, str]], "subprocess.CompletedProcess[str]"]


@dataclasses.dataclass(frozen=True)
class Target:
    """The environment that wheels are for, and where they come from.

    ``python`` is 3.12, 3.12.3 or 3.13t; ``arch`` x86_64 or aarch64; ``glibc`` 2.39. ``settings`` says whether pip's
    own settings of this machine hold beside what is given here.
    """

    python: str
    arch: str
    glibc: str
    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    constraints: tuple[str, ...] = ()
    settings: bool = False

    @property
    def minor(self) -> str:
        """3.12 of 3.12.3."""
        return ".".join(self.python.rstrip("t").split(".")[:2])

    def markers(self) -> dict[str, str]:
        """Environment of PEP 508 markers, where it is not that of every Linux."""
        plain = self.python.rstrip("t")
        return {
            "python_version": self.minor,
            "python_full_version": plain if plain.count(".") == 2 else f"{self.minor}.0",
            "implementation_version": plain if plain.count(".") == 2 else f"{self.minor}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "platform_machine": self.arch,
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
        }

    def platforms(self) -> list[str]:
        """Platform tags that it runs, newest glibc first: pip takes each tag by name, it knows no "or older"."""
        major, minor = (int(part) for part in self.glibc.split(".")[:2])
        if major != 2:
            raise LockProblem(f"glibc {self.glibc}: no wheel is tagged for another major than 2")
        tags = [f"manylinux_2_{number}_{self.arch}" for number in range(minor, 4, -1)]
        names = ((17, "manylinux2014"), (12, "manylinux2010"), (5, "manylinux1"))
        tags += [f"{name}_{self.arch}" for least, name in names if minor >= least]
        return [*tags, f"linux_{self.arch}"]


def wanted(plan: Plan) -> list[str]:
    """Requirements of a plan: torch, its companions and what its metadata does not say, such as numpy<2."""
    torch = plan["torch"]
    lines = [str(torch["requirement"])]
    lines += [f"{name}=={torch[name]}" for name in ("torchvision", "torchaudio") if torch.get(name)]
    return lines + [f"{name}{spec}" for name, spec in sorted((torch.get("python_packages") or {}).items())]


def resolve(target: Target, requirements: t.Sequence[str], run: t.Optional[Run] = None) -> list[str]:
    """Lines ``name==version --hash=sha256:...`` of every wheel, sorted: what pip installs with ``--require-hashes``.

    Raises LockProblem with pip's own reason where there is no such set of wheels, or one has no hash.
    """
    runner = run or _run
    with tempfile.TemporaryDirectory(prefix="gpufleet-lock-") as folder:
        report = pathlib.Path(folder) / "report.json"
        # Parts of wheels are read where the index serves no metadata beside them; a pip without that downloads.
        for lazy in (["--use-feature=fast-deps"], []):
            done = runner(_command(target, requirements, folder, report, lazy), _environment(target))
            if done.returncode == 0:
                return sorted(_line(item) for item in json.loads(report.read_text(encoding="utf-8"))["install"])
            if "--use-feature" not in done.stderr:
                break
    raise LockProblem(
        f"pip finds no wheels for {', '.join(requirements)} (Python {target.python}, {target.arch}, "
        f"glibc {target.glibc}, {target.index_url or 'the index of its settings'}): "
        + complaint(done.stderr + done.stdout)
    )


def download(target: Target, requirements: str, into: str, run: t.Optional[Run] = None) -> None:
    """Bring the wheels of a requirements file, in which every line has its hash, into a folder.

    Raises LockProblem with pip's own reason where one cannot be had.
    """
    command = [*_pip(target, "download"), "--no-deps", "--require-hashes", "--only-binary=:all:", f"--dest={into}"]
    done = (run or _run)(
        [*command, *_machine(target), *_places(target), f"--requirement={requirements}"], _environment(target)
    )
    if done.returncode:
        raise LockProblem(
            f"pip cannot download the wheels for Python {target.python}, {target.arch}, glibc {target.glibc}: "
            + complaint(done.stderr + done.stdout)
        )


def _command(
    target: Target, requirements: t.Sequence[str], folder: str, report: pathlib.Path, extra: t.Sequence[str]
) -> list[str]:
    command = [*_pip(target, "install"), "--dry-run", "--ignore-installed", "--only-binary=:all:"]
    command += [f"--report={report}", f"--target={folder}/none"]
    return [*command, *_machine(target), *_places(target), *extra, *requirements]


def _pip(target: Target, what: str) -> list[str]:
    launched = [sys.executable, "-c", LAUNCHER, json.dumps(target.markers())]
    return [*launched, what, "--disable-pip-version-check", "--no-input"]


def _machine(target: Target) -> list[str]:
    tag = "cp" + target.minor.replace(".", "")
    options = [f"--python-version={target.minor}"]
    options += ["--implementation=cp", f"--abi={tag}{'t' if target.python.endswith('t') else ''}"]
    options += [] if target.python.endswith("t") else ["--abi=abi3"]
    return [*options, "--abi=none", *(f"--platform={tag}" for tag in target.platforms())]


def _places(target: Target) -> list[str]:
    options = [f"--index-url={target.index_url}"] if target.index_url else []
    options += [f"--extra-index-url={url}" for url in target.extra_index_urls]
    options += [f"--find-links={place}" for place in target.find_links]
    options += [f"--constraint={path}" for path in target.constraints]
    return [*options, *(["--no-index"] if target.no_index else [])]


def _environment(target: Target) -> dict[str, str]:
    if target.settings:
        return dict(os.environ)
    # Where certificates lie and how long to wait are the machine's, what is installed from where is the plan's.
    kept = {"PIP_CERT", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT"}
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name in kept}
    return {**own, "PIP_CONFIG_FILE": os.devnull}


def _run(command: t.Sequence[str], environment: t.Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as problem:
        raise LockProblem(f"pip did not answer within {TIMEOUT_S} s") from problem


def _line(item: t.Mapping[str, t.Any]) -> str:
    """A line of pip's report."""
    name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
    version, url = item["metadata"]["version"], item["download_info"]["url"]
    archive = item["download_info"].get("archive_info")
    if archive is None:
        raise LockProblem(f"{name} {version}: {url} is no archive, so it has no hash to lock")
    digest = (archive.get("hashes") or {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    if not digest and url.startswith("file:"):
        path = pathlib.Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise LockProblem(f"{name} {version}: the index gives no SHA-256 for {url}; lock from an index that does")
    return f"{name}=={version} --hash=sha256:{digest}"
