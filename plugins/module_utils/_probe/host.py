# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine itself: operating system, kernel, Python, what it runs in. Only files are read, no command runs."""

from __future__ import annotations

import os
import re
import sys
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

#: Text in the DMI vendor or product name, as systemd-detect-virt calls the machine. Amazon's Nitro
#: names its metal instances alike: their product ends in ".metal" (see below).
_DMI = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("QEMU", "qemu"),
    ("Amazon EC2", "amazon"),
    ("Google", "google"),
    ("VMware", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("Apple Virtualization", "apple"),
    ("Virtual Machine", "microsoft"),
)


def probe(runner: Runner) -> t.Dict[str, t.Any]:
    """The ``host`` part of an Observation."""
    kernel = runner.read("/proc/sys/kernel/osrelease") or os.uname().release
    dxg = runner.exists("/dev/dxg")
    return {
        "hostname": runner.read("/proc/sys/kernel/hostname") or os.uname().nodename,
        "machine_id": runner.read("/etc/machine-id"),
        "boot_id": runner.read("/proc/sys/kernel/random/boot_id"),
        "os": parse_os_release(runner.read("/etc/os-release") or runner.read("/usr/lib/os-release") or ""),
        "kernel": kernel,
        "command_line": runner.read("/proc/cmdline"),
        "arch": os.uname().machine,
        "glibc": _glibc(),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "compiler": parse_compiler(runner.read("/proc/version") or ""),
        "virtualization": detect_virtualization(runner, kernel, dxg),
        "secure_boot": _secure_boot(runner),
        "dxg": dxg,
    }


def parse_os_release(text: str) -> t.Dict[str, t.Any]:
    """``{id, version, name, like, variant}`` of an os-release file; an absent field is ""."""
    values = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            values[name] = value.strip().strip("\"'")
    return {
        "id": values.get("ID", ""),
        "version": values.get("VERSION_ID", ""),
        "name": values.get("PRETTY_NAME", ""),
        "like": values.get("ID_LIKE", "").split(),
        "variant": values.get("VARIANT_ID", ""),
    }


def parse_compiler(version: str) -> t.Optional[str]:
    """``gcc 12.2.0`` or ``clang 17.0.6`` of /proc/version, None where it does not say."""
    clang = re.search(r"clang version (\d+(?:\.\d+)*)", version)
    if clang:
        return f"clang {clang.group(1)}"
    # "(x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld ...", "(gcc (GCC) 11.3.1 20221121 (Red Hat ..."
    gcc = re.search(r"\bgcc[\w.-]* \([^()]*\) (\d+(?:\.\d+)*)", version)
    if gcc:
        return f"gcc {gcc.group(1)}"
    old = re.search(r"gcc version (\d+(?:\.\d+)*)", version)
    return f"gcc {old.group(1)}" if old else None


def detect_virtualization(runner: Runner, kernel: str, dxg: bool) -> str:
    """``none``, or what the machine runs in by the names of systemd-detect-virt: the container before the machine."""
    if dxg or "microsoft" in kernel.lower():
        return "wsl"
    return _container(runner) or machine(runner)


def _container(runner: Runner) -> t.Optional[str]:
    told = runner.read("/run/systemd/container") or runner.env.get("container", "")
    if told:
        return told
    if runner.exists("/run/.containerenv"):
        return "podman"
    if runner.exists("/.dockerenv"):
        return "docker"
    environment = runner.read_bytes("/proc/1/environ") or b""
    match = re.search(rb"(?:^|\0)container=([^\0]+)", environment)
    if match:
        return match.group(1).decode("utf-8", "replace")
    return "kubernetes" if "KUBERNETES_SERVICE_HOST" in runner.env else None


def machine(runner: Runner) -> str:
    """``none``, or the virtual machine that this is, also from within a container."""
    vendor = runner.read("/sys/class/dmi/id/sys_vendor") or ""
    product = runner.read("/sys/class/dmi/id/product_name") or ""
    bare = product.endswith(".metal") or ".metal-" in product
    if not bare:
        for text, name in _DMI:
            if text in vendor or text in product:
                return name
    if re.search(r"^flags\s*:.*\bhypervisor\b", runner.read("/proc/cpuinfo", 1 << 16) or "", re.MULTILINE):
        return (runner.read("/sys/hypervisor/type") or "vm-other") if not bare else "none"
    return "none"


def _secure_boot(runner: Runner) -> str:
    data = runner.read_bytes(SECURE_BOOT)
    # The first four bytes are the variable's attributes.
    if data is not None and len(data) == 5:
        return "enabled" if data[4] else "disabled"
    if runner.exists("/sys/firmware/efi") or not runner.listdir("/sys/firmware"):
        return "unknown"
    return "not_applicable"


def _glibc() -> t.Optional[str]:
    try:
        name, _space, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None


#: Of a look that failed.
UNKNOWN: t.Dict[str, t.Any] = {
    "hostname": None,
    "machine_id": None,
    "boot_id": None,
    "os": parse_os_release(""),
    "kernel": "",
    "command_line": None,
    "arch": "",
    "glibc": None,
    "python": "",
    "compiler": None,
    "virtualization": "unknown",
    "secure_boot": "unknown",
    "dxg": False,
}
