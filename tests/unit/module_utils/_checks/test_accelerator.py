# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of hosts: what each may be planned for. Columns: what is there, what is stated, what must come out."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accelerator
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.accelerator import Policy, decide
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.pci import role_of

AUTO = "auto"


def device(address: str, ids: str, klass: str, driver: t.Optional[str] = None) -> t.Dict[str, t.Any]:
    vendor, number = ids.split(":")
    return {
        "address": address,
        "vendor": vendor,
        "device": number,
        "class": klass,
        "driver": driver,
        "role": role_of(vendor, number, klass),
    }


def gpus(count: int, driver: t.Optional[str] = "nvidia") -> t.List[t.Dict[str, t.Any]]:
    return [device(f"0000:{0x10 + index:02x}:00.0", "10de:2330", "0302", driver) for index in range(count)]


BMC = device("0000:03:00.0", "1a03:2000", "0300")
VIRTIO = device("0000:00:02.0", "1af4:1050", "0300")
IRIS = device("0000:00:02.0", "8086:9a49", "0300")
MI300X = device("0000:41:00.0", "1002:74a1", "1200")
MI210 = device("0000:41:00.0", "1002:740f", "0380")
GAUDI = device("0000:33:00.0", "1da3:1020", "1200")
XEON_MAX_GPU = device("0000:29:00.0", "8086:0bd5", "0380")
NVSWITCH = device("0000:05:00.0", "10de:22a3", "0680")


def host(
    pci: t.Sequence[t.Dict[str, t.Any]] = (),
    shown: t.Optional[int] = None,
    nvml: t.Optional[str] = None,
    dxg: bool = False,
    hidden: t.Sequence[t.Tuple[str, str]] = (),
    states: t.Sequence[str] = (),
    errors: t.Optional[t.Dict[str, str]] = None,
    virtualization: str = "none",
    module: str = "",
) -> t.Dict[str, t.Any]:
    """An Observation as far as the decision reads it; every GPU of ``pci`` is shown by NVML unless stated."""
    on_bus = [entry["address"] for entry in pci if entry["role"] == "gpu"]
    count = len(on_bus) if shown is None else shown
    state = nvml or ("ok" if on_bus else "no_library")
    if state != "ok":
        count = 0
    addresses = on_bus + [f"0000:f{index}:00.0" for index in range(8)]
    return {
        "host": {"dxg": dxg, "virtualization": virtualization},
        "pci": list(pci),
        "driver": {"owner": "package", "version": module},
        "nvml": {"state": state, "error": ""},
        "gpus": [
            {"index": index, "pci_address": addresses[index], "state": states[index] if index < len(states) else "ok"}
            for index in range(count)
        ],
        "visibility": {"hidden_by": [{"how": how, "found": found} for how, found in hidden]},
        "errors": errors or {},
    }


CUDA_0 = ("CUDA_VISIBLE_DEVICES", "0")

#: name: (observation, policy, decision, {check: state})
HOSTS: t.Dict[str, t.Tuple[t.Any, Policy, str, t.Dict[str, str]]] = {
    # The CPU build, and only then.
    "bare machine, auto": (host(), Policy(AUTO), "cpu", {"accelerator-present": "not_applicable"}),
    "server with a BMC, auto": (host([BMC]), Policy(AUTO), "cpu", {"accelerator-present": "not_applicable"}),
    "virtual machine, auto": (host([VIRTIO]), Policy(AUTO), "cpu", {"accelerator-present": "not_applicable"}),
    "laptop with integrated graphics": (host([IRIS]), Policy(AUTO), "cpu", {"accelerator-present": "not_applicable"}),
    "auto, zero stated": (host(), Policy(AUTO, 0), "cpu", {"accelerator-present": "not_applicable"}),
    "auto, baseline without GPUs": (
        host(),
        Policy(AUTO, baseline_gpus=0),
        "cpu",
        {"accelerator-present": "not_applicable"},
    ),
    "auto, a majority without GPUs": (
        host(),
        Policy(AUTO, expected_majority=0),
        "cpu",
        {"accelerator-present": "not_applicable"},
    ),
    # Everything that forbids it.
    "a fleet's inventory, nothing stated": (host(), Policy(), "refuse", {"accelerator-present": "unknown"}),
    "a fleet, 8 stated, none there": (host([BMC]), Policy(gpus_expected=8), "refuse", {"accelerator-present": "fail"}),
    "a fleet, zero stated": (host(), Policy(gpus_expected=0), "refuse", {"accelerator-present": "unknown"}),
    "a fleet, most others have 8": (host(), Policy(expected_majority=8), "refuse", {"accelerator-present": "fail"}),
    "a fleet, proved with 8": (host(), Policy(baseline_gpus=8), "refuse", {"accelerator-present": "fail"}),
    "auto, but 8 stated": (host(), Policy(AUTO, 8), "refuse", {"accelerator-present": "fail"}),
    "auto, but proved with GPUs": (host(), Policy(AUTO, baseline_gpus=1), "refuse", {"accelerator-present": "fail"}),
    "auto, zero stated but proved with GPUs": (
        host(),
        Policy(AUTO, 0, baseline_gpus=1),
        "refuse",
        {"accelerator-present": "unknown"},
    ),
    "auto, but most others have GPUs": (
        host(),
        Policy(AUTO, expected_majority=8),
        "refuse",
        {"accelerator-present": "fail"},
    ),
    "auto, inside a Slurm job": (
        host(hidden=[("slurm", "job 17, no GPU asked for")]),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown", "gpus-hidden": "unknown"},
    ),
    "auto, CUDA_VISIBLE_DEVICES set": (
        host(hidden=[CUDA_0]),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown", "gpus-hidden": "unknown"},
    ),
    "auto, NVIDIA_VISIBLE_DEVICES=void": (
        host(hidden=[("NVIDIA_VISIBLE_DEVICES", "void")]),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown", "gpus-hidden": "unknown"},
    ),
    "auto, WSL beside a Windows GPU, no library": (
        host(dxg=True),
        Policy(AUTO),
        "cuda",
        {"gpu-without-driver": "fail", "gpu-count": "unknown"},
    ),
    "auto, sysfs unreadable": (
        host(errors={"pci": "OSError: no"}),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown"},
    ),
    "auto, visibility unreadable": (
        host(errors={"visibility": "OSError: no"}),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown"},
    ),
    "auto, host unreadable: WSL or not?": (
        host(errors={"host": "OSError: no"}),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown"},
    ),
    "auto, a baseline that cannot be read": (
        host(errors={"expected": "expected.json has schema 2"}),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown"},
    ),
    "auto, NVSwitches without a GPU": (
        host([NVSWITCH] * 6),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown"},
    ),
    # Accelerators of others.
    "auto, AMD MI300X": (
        host([BMC, MI300X]),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown", "foreign-accelerator": "fail"},
    ),
    "auto, AMD MI210": (
        host([MI210]),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown", "foreign-accelerator": "fail"},
    ),
    "auto, Gaudi": (
        host([GAUDI]),
        Policy(AUTO),
        "refuse",
        {"accelerator-present": "unknown", "foreign-accelerator": "fail"},
    ),
    "a fleet, Intel Max": (
        host([XEON_MAX_GPU]),
        Policy(gpus_expected=4),
        "refuse",
        {"accelerator-present": "fail", "foreign-accelerator": "fail"},
    ),
    "an AMD card beside NVIDIA's": (
        host([*gpus(1), MI210]),
        Policy(),
        "cuda",
        {"gpu-count": "ok", "foreign-accelerator": "fail"},
    ),
    # GPUs, all well.
    "one GPU, nothing stated": (host(gpus(1)), Policy(), "cuda", {"gpu-count": "ok"}),
    "one GPU, auto": (host(gpus(1)), Policy(AUTO), "cuda", {"gpu-count": "ok"}),
    "8 of 8": (host([*gpus(8), NVSWITCH, BMC]), Policy(gpus_expected=8), "cuda", {"gpu-count": "ok"}),
    "8 by the majority": (host(gpus(8)), Policy(expected_majority=8), "cuda", {"gpu-count": "ok"}),
    "16 of 16": (host(gpus(16)), Policy(gpus_expected=16), "cuda", {"gpu-count": "ok"}),
    "WSL, NVML shows the GPU": (host(dxg=True, nvml="ok", shown=1), Policy(AUTO), "cuda", {"gpu-count": "ok"}),
    "WSL, two stated, one shown": (
        host(dxg=True, nvml="ok", shown=1),
        Policy(gpus_expected=2),
        "cuda",
        {"gpu-count": "fail"},
    ),
    "a GPU in a container without sysfs": (host(nvml="ok", shown=1), Policy(), "cuda", {"gpu-count": "ok"}),
    # Too few, too many.
    "7 of 8 on the bus": (host(gpus(7)), Policy(gpus_expected=8), "cuda", {"gpu-count": "fail"}),
    "7 on the bus where 8 were proved": (host(gpus(7)), Policy(baseline_gpus=8), "cuda", {"gpu-count": "fail"}),
    "7 on the bus where most have 8": (host(gpus(7)), Policy(expected_majority=8), "cuda", {"gpu-count": "fail"}),
    "7 on the bus, nothing stated": (host(gpus(7)), Policy(), "cuda", {"gpu-count": "unknown"}),
    "3 on the bus, nothing stated": (host(gpus(3)), Policy(), "cuda", {"gpu-count": "unknown"}),
    "6 beside NVSwitches, nothing stated": (
        host([*gpus(6), NVSWITCH]),
        Policy(),
        "cuda",
        {"gpu-count": "fail"},
    ),
    "8 beside NVSwitches, nothing stated": (host([*gpus(8), NVSWITCH]), Policy(), "cuda", {"gpu-count": "ok"}),
    "a virtual machine's 4 beside NVSwitches": (
        host([*gpus(4), NVSWITCH], virtualization="kvm"),
        Policy(),
        "cuda",
        {"gpu-count": "ok"},
    ),
    "7 stated, 7 there": (host(gpus(7)), Policy(gpus_expected=7), "cuda", {"gpu-count": "ok"}),
    "7 of 8 in NVML": (host(gpus(8), shown=7), Policy(gpus_expected=8), "cuda", {"gpu-count": "fail"}),
    "7 of 8 in NVML, nothing stated": (host(gpus(8), shown=7), Policy(), "cuda", {"gpu-count": "fail"}),
    "one of 8 lost": (
        host(gpus(8), states=["ok"] * 3 + ["lost"]),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "fail"},
    ),
    "one of 8 hangs": (
        host(gpus(8), states=["ok"] * 3 + ["timeout"]),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "unknown"},
    ),
    "one waits for a reset": (
        host(gpus(8), states=["ok"] * 3 + ["reset_required"]),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "fail"},
    ),
    "one of 8 is given to a virtual machine": (
        host([*gpus(7), device("0000:80:00.0", "10de:2330", "0302", "vfio-pci")], shown=7),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "fail"},
    ),
    "a container without GPUs on a GPU host": (
        host(
            gpus(8),
            nvml="no_library",
            module="570.158.01",
            hidden=[("cgroup", "0 of 8 GPUs have a device node in this container (docker)")],
        ),
        Policy(AUTO),
        "cuda",
        {"gpu-count": "unknown", "gpus-hidden": "unknown"},
    ),
    "one hangs and one is lost": (
        host(gpus(8), states=["lost", "timeout"]),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "fail"},
    ),
    "9 where 8 are stated": (host(gpus(9)), Policy(gpus_expected=8), "cuda", {"gpu-count": "fail"}),
    "8 where 4 were proved": (host(gpus(8)), Policy(baseline_gpus=4), "cuda", {"gpu-count": "warn"}),
    "GPUs where zero is stated": (host(gpus(1)), Policy(AUTO, 0), "cuda", {"gpu-count": "fail"}),
    # The user's word goes before the baseline, the baseline before the majority.
    "8 stated, 7 proved": (host(gpus(8)), Policy(gpus_expected=8, baseline_gpus=7), "cuda", {"gpu-count": "ok"}),
    "7 there, majority 7, baseline 8": (
        host(gpus(7)),
        Policy(expected_majority=7, baseline_gpus=8),
        "cuda",
        {"gpu-count": "fail"},
    ),
    # No driver.
    "no library": (
        host(gpus(8, None), nvml="no_library"),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-without-driver": "fail", "gpu-count": "unknown"},
    ),
    "no module loaded, auto": (
        host(gpus(1, None), nvml="no_driver"),
        Policy(AUTO),
        "cuda",
        {"gpu-without-driver": "fail", "gpu-count": "unknown"},
    ),
    "bound to nouveau": (
        host(gpus(1, "nouveau"), nvml="no_library"),
        Policy(),
        "cuda",
        {"gpu-without-driver": "fail", "gpu-count": "unknown"},
    ),
    "no driver and 7 of 8": (
        host(gpus(7, None), nvml="no_library"),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-without-driver": "fail", "gpu-count": "fail"},
    ),
    "versions differ": (
        host(gpus(8), nvml="mismatch"),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "unknown"},
    ),
    "NVML hangs": (
        host(gpus(8), nvml="timeout"),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "unknown"},
    ),
    "NVML fails": (
        host(gpus(8), nvml="error"),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "unknown"},
    ),
    # Hidden from us.
    "8 on the bus, a job sees 2": (
        host(gpus(8), shown=2, hidden=[("slurm", "job 17, SLURM_JOB_GPUS=0,1"), ("cgroup", "/dev/nvidia2")]),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "unknown", "gpus-hidden": "unknown"},
    ),
    "8 on the bus, a job sees none": (
        host(gpus(8), shown=0, hidden=[("cgroup", "/dev/nvidia0")]),
        Policy(AUTO),
        "cuda",
        {"gpu-count": "unknown", "gpus-hidden": "unknown"},
    ),
    "CUDA_VISIBLE_DEVICES hides 7": (
        host(gpus(8), hidden=[CUDA_0]),
        Policy(gpus_expected=8),
        "cuda",
        {"gpu-count": "ok", "gpus-hidden": "unknown"},
    ),
    "CUDA_VISIBLE_DEVICES names them all": (
        host(gpus(2), hidden=[("CUDA_VISIBLE_DEVICES", "1,0")]),
        Policy(gpus_expected=2),
        "cuda",
        {"gpu-count": "ok"},
    ),
    "CUDA_VISIBLE_DEVICES is empty": (
        host(gpus(1), hidden=[("CUDA_VISIBLE_DEVICES", "")]),
        Policy(),
        "cuda",
        {"gpu-count": "ok", "gpus-hidden": "unknown"},
    ),
    "CUDA_VISIBLE_DEVICES ends at -1": (
        host(gpus(2), hidden=[("CUDA_VISIBLE_DEVICES", "0,-1,1")]),
        Policy(),
        "cuda",
        {"gpu-count": "ok", "gpus-hidden": "unknown"},
    ),
}


@pytest.mark.parametrize("name", HOSTS)
def test_host(name: str) -> None:
    observed, policy, wanted, states = HOSTS[name]
    decision = decide(observed, policy)
    assert decision.accelerator == wanted
    assert {finding.check: finding.state for finding in decision.findings} == states


@pytest.mark.parametrize("name", HOSTS)
def test_cpu_is_planned_only_where_nothing_at_all_speaks_for_a_gpu(name: str) -> None:
    observed, policy, _wanted, _states = HOSTS[name]
    if decide(observed, policy).accelerator == "cpu":
        assert policy.accelerator == "auto"
        assert not any((policy.gpus_expected, policy.expected_majority, policy.baseline_gpus))
        assert not observed["host"]["dxg"] and not observed["gpus"] and not observed["errors"]
        assert not observed["visibility"]["hidden_by"]
        assert {entry["role"] for entry in observed["pci"]} <= {"display"}


@pytest.mark.parametrize("name", HOSTS)
def test_refused_or_lacking_hosts_are_never_ready(name: str) -> None:
    observed, policy, wanted, states = HOSTS[name]
    findings = decide(observed, policy).findings
    if wanted == "refuse" or set(states.values()) & {"fail", "unknown"}:
        assert _finding.fold(findings) != _finding.READY


@pytest.mark.parametrize(
    ("name", "check", "texts"),
    [
        ("7 of 8 on the bus", "gpu-count", ["found 7, expected 8", "0000:10:00.0", "gpus_expected"]),
        ("7 of 8 in NVML", "gpu-count", ["found 7, expected 8", "0000:17:00.0"]),
        ("one of 8 lost", "gpu-count", ["found 7, expected 8", "0000:13:00.0", "lost"]),
        ("one of 8 hangs", "gpu-count", ["found 7, expected 8", "0000:13:00.0", "timeout"]),
        ("one of 8 is given to a virtual machine", "gpu-count", ["0000:80:00.0 (bound to vfio-pci)"]),
        ("7 of 8 in NVML", "gpu-count", ["0000:17:00.0 (not in NVML)"]),
        ("auto, AMD MI300X", "foreign-accelerator", ["AMD 1002:74a1", "0000:41:00.0"]),
        ("bound to nouveau", "gpu-without-driver", ["nouveau", "libnvidia-ml.so.1"]),
        ("auto, inside a Slurm job", "accelerator-present", ["slurm", "job 17"]),
        ("server with a BMC, auto", "accelerator-present", ["1a03:2000"]),
        ("auto, NVSwitches without a GPU", "accelerator-present", ["NVSwitch"]),
    ],
)
def test_findings_name_what_was_found(name: str, check: str, texts: t.List[str]) -> None:
    observed, policy, _wanted, _states = HOSTS[name]
    (finding,) = (finding for finding in decide(observed, policy).findings if finding.check == check)
    whole = " ".join((finding.found, finding.expected, finding.reason))
    assert [text for text in texts if text not in whole] == []


def test_a_gpu_that_does_not_say_its_address_is_the_one_that_is_left() -> None:
    observed = host(gpus(8), states=["ok"] * 3 + ["timeout"])
    observed["gpus"][3]["pci_address"] = None
    (finding,) = decide(observed, Policy(gpus_expected=8)).findings
    assert finding.found == "found 7, expected 8: 0000:13:00.0 (timeout)"


def test_policy_refuses_a_word_that_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="rocm"):
        accelerator.Policy("rocm")
