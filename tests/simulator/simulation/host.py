# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the kernel on a simulated machine: /proc/driver/nvidia, sysfs, /dev/nvidia*, the kernel log.

All is written below one folder, as the real paths: FOLDER/sys/bus/pci/devices/..., FOLDER/proc/driver/nvidia/...
"""

from __future__ import annotations

import re
from pathlib import Path

from simulation import pci
from simulation.pci import address_of, present
from simulation.scenario import LINE_END, LOG, Values, first_step

#: Files of the kernel that a scenario sets as ``host.NAME``, and what they say on a healthy machine.
FILES = {
    "command_line": ("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro quiet"),
    "numa_balancing": ("proc/sys/kernel/numa_balancing", "0"),
    "clocksource": ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
}

MODULE_NAMES = ("nvidia", "nvidia_uvm", "nvidia_modeset")


def write(values: Values, folder: Path, kernel_log: str | None = None) -> None:
    """Writes all files that the scenario's kernel shows."""
    pci.write(values, folder / "sys")
    for name in ("sys_vendor", "product_name"):
        if f"sim/dmi/{name}" in values:
            (folder / "sys/class/dmi/id").mkdir(parents=True, exist_ok=True)
            (folder / "sys/class/dmi/id" / name).write_text(values[f"sim/dmi/{name}"] + "\n")
    (folder / "sys/gpusim").touch()
    for place in sorted({key for key in values if key.startswith("sim/node/")}):
        _write_node(folder / "sys/devices/system/node" / f"node{place.rsplit('/', 1)[1]}", values[place])
    (folder / "proc/driver").mkdir(parents=True)
    (folder / "dev").mkdir()
    if values["sim/driver_loaded"] == "Yes":
        _write_driver(values, folder)
    log = _usual_log(values) if kernel_log is None else kernel_log
    log += values.get(f"sim/{LOG}", "").replace(LINE_END, "\n")
    (folder / "dev/kmsg").write_text(to_kmsg(log))
    for name, (path, usual) in FILES.items():
        file = folder / "files" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(values.get(f"sim/host/{name}", usual) + "\n")


def _write_node(path: Path, cpus: str) -> None:
    """A NUMA node, as NCCL reads it: the mask has 32 bits a word, the most significant word first."""
    mask = 0
    for part in cpus.split(","):
        first, _dash, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    words = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(mask.bit_length(), 1), 32)]
    path.mkdir(parents=True)
    (path / "cpulist").write_text(cpus + "\n")
    (path / "cpumap").write_text(",".join(reversed(words)) + "\n")


# ---- the driver ----


def _write_driver(values: Values, folder: Path) -> None:
    version = first_step(values["driver_version"])
    machine = "aarch64" if "GB200" in values.get("gpu/0/product_name", "") else "x86_64"
    kind = (f"NVIDIA UNIX Open Kernel Module for {machine}" if values["sim/kernel_module"] == "open"
            else f"NVIDIA UNIX {machine} Kernel Module")  # fmt: skip
    proc = folder / "proc/driver/nvidia"
    (proc / "gpus").mkdir(parents=True)
    (proc / "version").write_text(
        f"NVRM version: {kind}  {version}  Release Build  (builder@host)  Mon Jun  1 00:00:00 UTC 2026\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    (proc / "params").write_text("EnableGpuFirmware: 18\nNvLinkDisable: 0\nPreserveVideoMemoryAllocations: 0\n")
    for gpu in present(values):
        _write_information(values, proc / "gpus" / address_of(values, gpu), gpu)
    for name in MODULE_NAMES:
        module = folder / "sys/module" / name
        module.mkdir(parents=True)
        (module / "refcnt").write_text("0\n")
        (module / "initstate").write_text("live\n")
        if name == "nvidia":
            (module / "version").write_text(version + "\n")
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (folder / "dev" / name).touch()
    for gpu in present(values):
        minor = values.get(f"gpu/{gpu}/minor_number", str(gpu))
        if minor.isdigit():
            (folder / "dev" / f"nvidia{minor}").touch()


def _write_information(values: Values, path: Path, gpu: int) -> None:
    def said(name: str) -> str:
        return first_step(values.get(f"gpu/{gpu}/{name}", "N/A"))

    path.mkdir()
    (path / "information").write_text(
        f"Model: \t\t {said('product_name')}\nIRQ:   \t\t {100 + gpu}\nGPU UUID: \t {said('uuid')}\n"
        f"Video BIOS: \t {said('vbios_version')}\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"
        f"DMA Mask: \t 0xfffffffffffff\nBus Location: \t {address_of(values, gpu)}\n"
        f"Device Minor: \t {said('minor_number')}\nGPU Firmware: \t {said('gsp_firmware_version')}\n"
        "GPU Excluded:\t No\n"
    )


# ---- the kernel log ----


def _usual_log(values: Values) -> str:
    """What a healthy machine says: its GPUs are found, its driver is loaded."""
    lines = [f"pci {address_of(values, gpu)}: [10de:0000] type 00 class 0x030200" for gpu in present(values)]
    if values["sim/driver_loaded"] == "Yes":
        version = first_step(values["driver_version"])
        flavour = "Open Kernel Module for x86_64" if values["sim/kernel_module"] == "open" else "x86_64 Kernel Module"
        lines += [
            "nvidia: loading out-of-tree module taints kernel.",
            "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
            f"NVRM: loading NVIDIA UNIX {flavour}  {version}  Release Build  (builder@host)",
        ]
    return "".join(f"[{second:5d}.000000] {line}\n" for second, line in enumerate(lines))


def to_kmsg(text: str) -> str:
    """Lines of dmesg, of journalctl or of /dev/kmsg itself as records of /dev/kmsg."""
    records = []
    for number, line in enumerate(text.splitlines()):
        if re.match(r"\d+,\d+,\d+,\S*;", line):
            records.append(line)
            continue
        match = re.match(r"\[\s*(\d+)\.(\d+)\]\s?(.*)", line)
        seconds, fraction, message = match.groups() if match else (str(number), "0", line)
        message = re.sub(r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} .*?\]\s?", "", message)
        records.append(f"6,{number},{int(seconds) * 1000000 + int(fraction.ljust(6, chr(48))[:6])},-;{message}")
    return "".join(record + "\n" for record in records)
