# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command's own view of the machine: files of the simulation in place of the kernel's and of ld.so.cache.

The view is a mount namespace: it ends with the command, and nothing outside it changes. A plain user gets one inside a
user namespace, and the command runs there as that user again. A container has such a namespace already: its processes,
and those that come in by SSH, all see the simulation until it stops.
"""

from __future__ import annotations

import ctypes
import io
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

NEW_NAMESPACE, NEW_USER = 0x00020000, 0x10000000
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18
#: Where commands are looked for also by those who do not trust PATH.
LOCAL_BIN = Path("/usr/local/bin")
HIDDEN = "0x10de"

_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceError(Exception):
    """The machine does not let us; the text says so in one line."""


def _check(result: int, what: str) -> None:
    if result != 0:
        raise NamespaceError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source: Path, target: Path, flags: int = BIND | RECURSIVE) -> None:
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None), f"mount {source} on {target}")


def _map(inside: int, outside: int, group_inside: int, group_outside: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inside} {outside} 1")
    Path("/proc/self/gid_map").write_text(f"{group_inside} {group_outside} 1")


def enter(folder: Path) -> None:
    """Makes this process see FOLDER's sys, proc/driver, dev, bin and ld.so.cache in place of the machine's."""
    user, group = os.getuid(), os.getgid()
    try:
        if _libc.unshare(NEW_NAMESPACE) == 0:
            user = 0
        else:
            _check(_libc.unshare(NEW_NAMESPACE | NEW_USER), "unshare")
            _map(0, user, 0, group)
    except (NamespaceError, OSError) as error:
        raise NamespaceError(
            f"this machine gives no mount namespace to this user ({error}); run as root, or allow user namespaces"
            " (Ubuntu 24.04: sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
        ) from error
    _mount(Path("none"), Path("/"), RECURSIVE | PRIVATE)
    _merge(Path("/dev"), folder / "dev")
    _device_nodes(folder / "dev")
    _mount(folder / "dev", Path("/dev"))
    _kernel_files(folder)
    _commands(folder)
    _probes(folder)
    if (folder / "lib/stuck").is_dir():
        _start_stuck(folder)
    if (folder / "ld.so.cache").exists():
        _mount(folder / "ld.so.cache", Path("/etc/ld.so.cache"))
    if user != 0:
        _check(_libc.unshare(NEW_USER), "unshare")
        _map(user, 0, group, 0)


def _probes(folder: Path) -> None:
    """Probes of this machine and of others do not wait for each other: see plugins/module_utils/_probe/child.py."""
    ours = folder / "run"
    ours.mkdir(exist_ok=True)
    if os.getuid() == 0 and os.access("/run", os.W_OK):
        Path("/run/gpufleet").mkdir(exist_ok=True)
        _mount(ours, Path("/run/gpufleet"))
    os.environ["XDG_RUNTIME_DIR"] = str(ours)


def _kernel_files(folder: Path) -> None:
    for name in ("sys", "proc/driver"):
        _merge(Path("/", name), folder / name)
        _mount(folder / name, Path("/", name))
    for file in sorted((folder / "files").rglob("*")):
        real = Path("/", file.relative_to(folder / "files"))
        if file.is_file() and real.exists():  # not every kernel has every one
            _mount(file, real)


#: Only a simulated sysfs has it.
MARK = Path("/sys/gpusim")


def enter_container(pid: int, archive: bytes, folder: Path) -> None:
    """Unpacks ARCHIVE, a simulation, as FOLDER in the container of process PID, and makes all in there see it.

    This process is in the container afterwards.
    """
    with open(f"/proc/{pid}/ns/mnt") as namespace:
        _check(_libc.setns(namespace.fileno(), NEW_NAMESPACE), "enter the container")
    if MARK.exists():
        raise NamespaceError(
            f"the container has a simulation in {folder}: change it with gpusim-set, or restart it first"
        )
    shutil.rmtree(folder, ignore_errors=True)  # of before a restart, when its mounts went
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder)
    for path in sorted((folder / "dev").iterdir()):
        # The container's device rules let nobody open NVIDIA's own numbers, as there are no such devices.
        real = Path("/dev", path.name)
        if path.name.startswith("nvidia") and not real.exists():
            os.mknod(real, 0o666 | stat.S_IFCHR, os.stat("/dev/null").st_rdev)
            real.chmod(0o666)
        elif path.name == "kmsg":
            real.touch()
            _mount(path, real)
    _kernel_files(folder)
    for path in sorted((folder / "bin").iterdir()):
        shutil.copy2(path, Path("/usr/bin" if path.name == "nvidia-smi" else "/usr/local/bin", path.name))
    Path("/etc/ld.so.conf.d").mkdir(exist_ok=True)
    Path("/etc/ld.so.conf.d/000-gpusim.conf").write_text(f"{folder}/lib\n")
    subprocess.run(["/sbin/ldconfig"], check=True)


def _start_stuck(folder: Path) -> None:
    """The files on which nobody's reading ends; they let go when the command has ended."""
    server = subprocess.Popen(
        [folder / "bin/gpusim-stuck", folder / "lib/stuck"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    if server.stdout is None or server.stdout.readline() != b"ready\n":
        problem = server.communicate()[1].decode().strip().splitlines()[-1:]
        raise NamespaceError(f"@stuck needs a FUSE file system: {' '.join(problem)}")


def _merge(real: Path, ours: Path) -> None:
    """Brings what REAL has and OURS lacks into OURS, by binding; real NVIDIA devices stay out."""
    for entry in sorted(os.scandir(real), key=lambda entry: entry.name):
        target = ours / entry.name
        if entry.is_symlink():
            if not target.is_symlink() and not target.exists() and not _hidden(Path(entry.path)):
                target.symlink_to(os.readlink(entry.path))
        elif target.is_dir() and entry.is_dir():
            _merge(Path(entry.path), target)
        elif not target.exists() and not (real.name == "nvidia" or entry.name.startswith("nvidia")):
            target.mkdir() if entry.is_dir() else target.touch()
            _mount(Path(entry.path), target)


def _hidden(device: Path) -> bool:
    try:
        return device.parent.name == "devices" and (device / "vendor").read_text().strip() == HIDDEN
    except OSError:
        return False


def _device_nodes(dev: Path) -> None:
    """Real nodes where we may make them (nobody answers there), else the null device under their names."""
    for path in dev.glob("nvidia*"):
        if not path.is_file():
            continue
        minor = path.name.removeprefix("nvidia")
        path.unlink()
        try:
            number = os.makedev(195, int(minor)) if minor.isdigit() else os.makedev(195, 255)
            os.mknod(path, 0o666 | stat.S_IFCHR, number)
            path.chmod(0o666)
        except PermissionError:
            path.touch()
            _mount(Path("/dev/null"), path)


def _commands(folder: Path) -> None:
    """Our commands stand in /usr/local/bin, and in place of real ones wherever those are."""
    for ours in sorted((folder / "bin").iterdir()):
        for place in os.get_exec_path():
            real = Path(place, ours.name)
            # os.path: folders that this user may not enter hold no command of his.
            if os.path.isfile(real) and not os.path.islink(real) and not real.samefile(ours):
                kept = folder / "real" / ours.name
                kept.parent.mkdir(exist_ok=True)
                if not kept.exists():
                    shutil.copy2(real, kept)
                _mount(ours, real)
    if LOCAL_BIN.is_dir():
        _merge(LOCAL_BIN, folder / "bin")
        _mount(folder / "bin", LOCAL_BIN)
