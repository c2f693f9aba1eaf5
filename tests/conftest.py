# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every test session does: fast tests first, and the commands that tests need, installed or named.

Runs on Python 3.8+, where tests/unit/module_utils runs.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

#: The Debian and Ubuntu packages behind a command, all that it takes to use it in a test.
PACKAGES: t.Dict[str, t.Tuple[str, ...]] = {
    "podman": ("podman", "runc", "netavark", "aardvark-dns", "iptables"),
    "debootstrap": ("debootstrap",),
    "gcc": ("gcc", "libc6-dev"),
    "g++": ("g++",),
    "ssh": ("openssh-client",),
    "git": ("git",),
    "ip": ("iproute2",),
    "openssl": ("openssl",),
    "gpg": ("gnupg",),
    "ipmitool": ("ipmitool",),
    "ipmi_sim": ("openipmi",),
}
CONTAINER_COMMANDS = ("podman", "debootstrap", "ssh")
#: The order of the folders below tests/; those that are not named come between.
FIRST, LAST = ("unit", "run", "gates"), ("integration", "containers", "molecule")
#: What apt-get said where it could not install.
INSTALL_ERRORS: t.List[str] = []


def needed(item: pytest.Item) -> t.Set[str]:
    """The commands that a test names with ``needs``, and those of ``container``."""
    names = {name for mark in item.iter_markers("needs") for name in mark.args}
    return names | set(CONTAINER_COMMANDS if item.get_closest_marker("container") else ())


def missing(commands: t.Iterable[str]) -> t.List[str]:
    return sorted(name for name in commands if shutil.which(name) is None)


def may_make_containers() -> bool:
    """True where this process has CAP_SYS_ADMIN: a test machine may be a container itself, an ordinary one lacks it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    effective = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(effective) and bool(int(effective[0], 16) >> 21 & 1)


def barred(item: pytest.Item) -> str:
    """Why a test cannot run on this machine, whatever is installed; empty where it can."""
    if item.get_closest_marker("container") is None:
        return ""
    if os.geteuid() != 0:
        return "container tests need root"
    return "" if may_make_containers() else "container tests do not run inside a container that lacks CAP_SYS_ADMIN"


def pytest_collection_modifyitems(items: t.List[pytest.Item]) -> None:
    root = Path(__file__).parent

    def order(item: pytest.Item) -> t.Tuple[int, int]:
        parts = item.path.relative_to(root).parts if root in item.path.parents else ("",)
        places = [*FIRST, *LAST]
        place = places.index(parts[0]) if parts[0] in places else len(FIRST)
        # The scenarios of Molecule are the longest: at the end one worker would be left alone with them.
        long = parts[-1] == "test_molecule.py"
        return place, -1 if long else item.get_closest_marker("container") is not None

    items.sort(key=order)


def group(nodeid: str) -> str:
    """What one worker does in its order: a file, a folder that shares what it starts, or a scenario of Molecule."""
    path = nodeid.split("::", 1)[0]
    parts = path[path.rfind("tests/") :].split("/")
    if parts[-1] == "test_molecule.py":
        return nodeid
    return "/".join(parts[:3] if parts[1:2] == ["integration"] else parts)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: t.Any) -> t.Any:
    """``group`` in place of xdist's own: its marks for groups are lost with pytest 9."""
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return Grouped(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Installs what is missing of what the chosen tests need, as root and where there is apt; one worker for all."""
    if session.config.option.collectonly or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    wanted = {name for item in session.items if not barred(item) for name in needed(item)}
    if not missing(wanted):
        return
    with open("/run/gpufleet-tests.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packages = sorted({package for name in missing(wanted) for package in PACKAGES.get(name, ())})
        if packages:
            install(packages)


def install(packages: t.List[str]) -> None:
    print("\ninstalling", *packages, flush=True)
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *command],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            INSTALL_ERRORS.append(f"apt-get {command[0]}: {done.stdout.decode(errors='replace').strip()}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    reason = barred(item)
    absent = missing(needed(item))
    if not reason and absent:
        packages = sorted({package for name in absent for package in PACKAGES.get(name, (name,))})
        reason = (
            f"needs {', '.join(absent)} (Debian, Ubuntu: apt install {' '.join(packages)}) {' '.join(INSTALL_ERRORS)}"
        )
        if INSTALL_ERRORS and os.environ.get("CI"):  # A skip there would be read as a success.
            pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def interpreters() -> t.Dict[str, str]:
    """The Pythons of this machine by minor version, as `3.8`: those in PATH that start, and pyenv's."""
    folders = [Path(folder) for folder in os.get_exec_path() if Path(folder) != Path(sys.prefix) / "bin"]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"), reverse=True)
    found: t.Dict[str, str] = {}
    for path in (path for folder in folders if folder.is_dir() for path in sorted(folder.glob("python3.*"))):
        match = re.match(r"python(3\.\d+)$", path.name)
        if match is None or match[1] in found:
            continue
        # pyenv leaves shims of versions that are not chosen: they are in PATH and fail.
        done = subprocess.run([str(path), "-I", "-c", ""], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode == 0:
            found[match[1]] = str(path)
    return found
