# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the lookup out of what is known of a host: the Observation, or else Ansible's facts."""

from __future__ import annotations

import typing as t

Options = dict[str, t.Any]

#: Options that a host's variables give, by the variable's name.
VARIABLES = {
    "driver_policy": "driver_policy",
    "driver_source": "driver_source",
    "driver_kernel_module": "kernel_module",
    "driver_forward_compat": "forward_compat",
    "cuda_version": "cuda",
}
#: What hides GPUs from a process that asks NVML; CUDA_VISIBLE_DEVICES hides them from CUDA alone.
_HIDES_FROM_NVML = ("slurm", "cgroup", "NVIDIA_VISIBLE_DEVICES")


def options(variables: t.Mapping[str, t.Any]) -> Options:
    """Options out of the variables of a host: ``gpufleet_observed``, else ``ansible_facts``, and its wishes."""
    observed = variables.get("gpufleet_observed")
    found = from_observation(observed) if observed else from_facts(variables.get("ansible_facts") or {})
    for variable, option in VARIABLES.items():
        if (value := variables.get(variable)) is not None:
            found[option] = value
    if variables.get("driver_mok_enroll"):
        # The role driver asks for it, and stops before anything else needs the module.
        found["mok_enrolled"] = True
    return found


def from_observation(observed: t.Mapping[str, t.Any]) -> Options:
    """Options out of what the module gpu_info saw. What it did not see is not there."""
    host = observed.get("host") or {}
    system = host.get("os") or {}
    driver = observed.get("driver") or {}
    owner = driver.get("owner")
    found: Options = {
        "os_id": system.get("id"),
        "os_version": system.get("version"),
        "arch": host.get("arch"),
        "glibc": host.get("glibc"),
        "kernel": host.get("kernel"),
        "compiler": host.get("compiler"),
        "virtualization": host.get("virtualization"),
        "python": host.get("python"),
        "secure_boot": host.get("secure_boot"),
        "mok_enrolled": host.get("mok") == "enrolled" or None,
        "driver": driver.get("version") or driver.get("library_version"),
        "driver_flavour": driver.get("kernel_module"),
        "driver_owner": owner,
        "gpus": _gpus(observed),
        "nvswitch": _switches(observed),
        "hidden_by": _hidden(observed),
    }
    if host.get("dxg") and not owner:
        found["driver_owner"] = "wsl"
    return {key: value for key, value in found.items() if value not in (None, "")}


def _pci(observed: t.Mapping[str, t.Any], role: str) -> list[t.Mapping[str, t.Any]]:
    return [device for device in observed.get("pci") or () if device.get("role") == role]


def _gpus(observed: t.Mapping[str, t.Any]) -> list[t.Any]:
    """What NVML shows by name and compute capability; the other NVIDIA GPUs on the PCI bus by their ids."""
    shown = observed.get("gpus") or []
    found: list[t.Any] = []
    seen = set()
    for device in shown:
        seen.add(str(device.get("pci_address") or "").lower()[-12:])
        name, capability = device.get("name"), device.get("compute_capability")
        if name:
            stated = {"compute_capability": capability} if capability and capability != "not_supported" else {}
            found.append({"name": name, **stated})
    on_bus = [device for device in _pci(observed, "gpu") if str(device.get("address") or "").lower()[-12:] not in seen]
    if len(_pci(observed, "gpu")) > len(shown):
        found += [f"{device['vendor']}:{device['device']}" for device in on_bus]
    return found


def _switches(observed: t.Mapping[str, t.Any]) -> int | None:
    """NVSwitches on the PCI bus; not known where the bus was not read, as under WSL."""
    return len(_pci(observed, "nvswitch")) if observed.get("pci") else None


def _hidden(observed: t.Mapping[str, t.Any]) -> str:
    hidden = [
        entry
        for entry in (observed.get("visibility") or {}).get("hidden_by") or ()
        if entry.get("how") in _HIDES_FROM_NVML
    ]
    if hidden and len(observed.get("gpus") or ()) < len(_pci(observed, "gpu")):
        return ", ".join(f"{entry['how']} ({entry.get('found', '')})" for entry in hidden)
    return ""


def from_facts(facts: t.Mapping[str, t.Any]) -> Options:
    """Options out of Ansible's facts: the system, never its GPUs."""
    python = facts.get("python_version")
    guest = facts.get("virtualization_role") == "guest"
    found: Options = {
        "os_id": facts.get("distribution"),
        "os_version": facts.get("distribution_version"),
        "arch": facts.get("architecture"),
        "kernel": facts.get("kernel"),
        "python": python,
        "virtualization": facts.get("virtualization_type") if guest else None,
    }
    return {key: value for key, value in found.items() if value not in (None, "")}
