# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_info on this machine as it is, and on simulated ones, through unchanged pynvml and through nvidia-smi."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GPUSIM = ROOT / "tests" / "simulator" / "gpusim"
#: Captures of real machines; see tests/unit/module_utils/_probe/test_smi.py.
SAMPLES = Path(os.environ.get("GPUFLEET_SAMPLES") or ROOT.parent / "shared" / "samples") / "nvidia-smi-xml"

OBSERVE = """
import json, sys, time
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import ask, runner, whole
if "--smi" in sys.argv:
    ask.PYNVML, sys.modules["pynvml"] = (), None
    ask.importlib.util.find_spec = lambda name: None
started = time.monotonic()
seen = whole.observe(runner.Runner())
json.dump({"observed": seen, "seconds": time.monotonic() - started}, sys.stdout)
"""


def module(*prefix: str, **options: t.Any) -> t.Dict[str, t.Any]:
    """The module as Ansible runs it, with what it answers."""
    arguments = json.dumps({"_ansible_check_mode": True, **options})
    script = (
        "import sys\n"
        "from ansible_collections.gpufleet.pytorch.plugins.modules import gpu_info\n"
        "from ansible.module_utils import basic\n"
        f"basic._ANSIBLE_ARGS = {json.dumps({'ANSIBLE_MODULE_ARGS': json.loads(arguments)})!r}.encode()\n"
        "basic._ANSIBLE_PROFILE = 'legacy'\n"
        "gpu_info.main()\n"
    )
    return run([*prefix, sys.executable, "-c", script])


def observe(*prefix: str, smi: bool = False) -> t.Dict[str, t.Any]:
    return run([*prefix, sys.executable, "-c", OBSERVE, *(["--smi"] if smi else [])])


def run(command: t.Sequence[str]) -> t.Dict[str, t.Any]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
    )
    if done.returncode == 125:
        pytest.skip(done.stderr.decode())
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return t.cast("t.Dict[str, t.Any]", json.loads(done.stdout))


def simulated(machine: str, *settings: str) -> list[str]:
    """The start of a command that runs on a simulated machine: a profile, or a capture (``.xml``)."""
    if not machine.endswith(".xml"):
        return [sys.executable, str(GPUSIM), "--profile", machine, *settings, "--"]
    path = SAMPLES / machine
    if not path.exists():
        pytest.skip(f"{path} is not there (GPUFLEET_SAMPLES names the folder of the captures)")
    return [sys.executable, str(GPUSIM), "--capture", str(path), *settings, "--"]


def flat(tree: t.Mapping[str, t.Any], prefix: str = "") -> t.Dict[str, t.Any]:
    found = {}
    for name, value in tree.items():
        found.update(flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value})
    return found


def test_this_machine() -> None:
    result = module(accelerator="auto")
    assert result["changed"] is False
    observed = result["observed"]
    assert observed["errors"] == {}
    assert observed["host"]["kernel"] == os.uname().release
    assert result["accelerator"] in ("cpu", "cuda", "refuse")
    assert result["findings"] and all(finding["observed_at"] for finding in result["findings"])


def test_this_machine_in_a_fleet_is_not_ready_without_gpus() -> None:
    result = module(gpus_expected=64)
    assert result["accelerator"] != "cpu"
    assert "fail" in [finding["state"] for finding in result["findings"]]


#: Every word that both sources have to write alike.
WORDS = {
    "compute_mode": "Exclusive_Process",
    "gpu_recovery_action": "Drain and Reset",
    "persistence_mode": "Disabled",
    "mig_mode.pending_mig": "Enabled",
    "ecc_mode.pending_ecc": "Disabled",
    "remapped_rows.remapped_row_pending": "Yes",
    "ecc_errors.volatile.sram_uncorrectable_parity": "2",
    "ecc_errors.volatile.sram_uncorrectable_secded": "3",
    "ecc_errors.aggregate.sram_threshold_exceeded": "Yes",
    "clocks_event_reasons.clocks_event_reason_hw_thermal_slowdown": "Active",
    "clocks_event_reasons.clocks_event_reason_sw_power_cap": "Active",
    "gpu_virtualization_mode.virtualization_mode": "VGPU",
    "fabric.health_mask": "0x2a9",
    "performance_state": "P8",
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("machine", "settings"),
    [
        *((name, {}) for name in ("a100.xml", "h100.xml", "t4.xml", "mock-gb200-ecc-injected.xml")),
        *((path.stem, {}) for path in sorted((GPUSIM.parent / "profiles").glob("*.toml"))),
        ("h100-sxm", {f"gpu.0.{name}": value for name, value in WORDS.items()}),
    ],
)
def test_pynvml_and_nvidia_smi_give_the_same_facts(machine: str, settings: dict[str, str]) -> None:
    prefix = simulated(machine, *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")))
    through, printed = observe(*prefix)["observed"], observe(*prefix, smi=True)["observed"]
    assert (through["nvml"]["source"], printed["nvml"]["source"]) == ("nvml", "nvidia-smi")
    assert through["nvml"]["driver_version"] == printed["nvml"]["driver_version"]
    assert len(through["gpus"]) == len(printed["gpus"]) > 0
    for one, other in zip(through["gpus"], printed["gpus"], strict=True):
        left, right = flat(one), flat(other)
        shared = set(left) & set(right)
        assert {name: left[name] for name in shared} == {name: right[name] for name in shared}
        # nvidia-smi leaves out what a GPU or a driver does not have.
        assert set(right) - set(left) == set()
        silent = set(left) - set(right) - {"nvlink.errors.crc_data"}
        assert {left[name] for name in silent} <= {"not_supported"}


@pytest.mark.needs("gcc")
def test_eight_gpus_are_judged_in_time() -> None:
    prefix = simulated("h100-sxm")
    result = module(*prefix, gpus_expected=8)
    assert result["accelerator"] == "cuda"
    states = {finding["check"]: finding["state"] for finding in result["findings"]}
    assert states["gpu-count"] == "ok"
    assert "driver-library-mismatch" not in states
    # This machine may be busy with other things: one quiet moment is enough.
    assert any(observe(*prefix)["seconds"] < 0.5 for _turn in range(5))


@pytest.mark.needs("gcc")
def test_a_lost_gpu_is_named() -> None:
    result = module(*simulated("h100-sxm", "--set", "gpu.3=@lost"), gpus_expected=8)
    (finding,) = (finding for finding in result["findings"] if finding["check"] == "gpu-count")
    assert finding["state"] == "fail"
    lost = [gpu for gpu in result["observed"]["gpus"] if gpu["state"] == "lost"]
    assert [gpu["index"] for gpu in lost] == [3]
    address = [device["address"] for device in result["observed"]["pci"] if device["role"] == "gpu"][3]
    assert finding["found"] == f"found 7, expected 8: {address} (lost)"


@pytest.mark.needs("gcc")
def test_a_call_that_hangs_for_ever_costs_one_gpu() -> None:
    seen = observe(*simulated("h100-sxm", "--set", "gpu.3.gpu_power_readings.current_power_limit=@hang"))
    assert [gpu["state"] for gpu in seen["observed"]["gpus"]] == ["ok"] * 3 + ["timeout"] + ["ok"] * 4
    assert seen["seconds"] < 5


@pytest.mark.needs("gcc")
def test_ten_at_once_with_a_stuck_driver() -> None:
    """The process is in uninterruptible sleep, as with a driver that never comes back; the others keep out of it."""
    ten = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-c', sys.argv[1]]\n"
        "probes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _turn in range(10)]\n"
        "print('[' + ','.join(probe.communicate()[0].decode() for probe in probes) + ']')\n"
    )
    prefix = simulated("h100-sxm", "--set", "init=@stuck")
    answers = t.cast("list[dict[str, t.Any]]", run([*prefix, sys.executable, "-c", ten, OBSERVE]))
    assert [answer["observed"]["nvml"]["state"] for answer in answers] == ["timeout"] * 10
    errors = sorted(answer["observed"]["nvml"]["error"] for answer in answers)
    (stuck,) = {error.split("process ")[1].split()[0].rstrip(",") for error in errors}
    assert sum("cannot be ended" in error for error in errors) == 1
    assert sum(f"a probe still waits for the driver (process {stuck}" in error for error in errors) == 9
    assert max(answer["seconds"] for answer in answers) < 5


#: What a scenario makes of the machine: settings, and what must be seen of it.
FAULTS: t.Dict[str, t.Tuple[t.List[str], t.Callable[[t.Dict[str, t.Any]], t.Any], t.Any]] = {
    "no GPU in NVML": (
        ["--set", "devices=0"],
        lambda seen: (seen["nvml"]["state"], seen["gpus"], sum(one["role"] == "gpu" for one in seen["pci"])),
        ("ok", [], 8),
    ),
    "16 GPUs": (["--gpus", "16"], lambda seen: [gpu["index"] for gpu in seen["gpus"]], list(range(16))),
    "the module is not loaded": (
        ["--set", "driver_loaded=no"],
        lambda seen: (seen["nvml"]["state"], seen["driver"]["version"], seen["gpus"]),
        ("no_driver", "", []),
    ),
    "library of another version": (
        ["--set", "library_version=580.178"],
        lambda seen: (seen["nvml"]["state"], seen["driver"]["version"], seen["driver"]["library_version"]),
        ("mismatch", "580.105.08", "580.178"),
    ),
    "NVML's start fails": (
        ["--set", "init=@error 999"],
        lambda seen: (seen["nvml"]["state"], seen["nvml"]["error"]),
        ("error", "Unknown Error"),
    ),
    "NVML's start hangs": (
        ["--set", "init=@hang"],
        lambda seen: (seen["nvml"]["state"], seen["nvml"]["error"]),
        ("timeout", "no answer within 2 s"),
    ),
    "a GPU that asks for a reset": (
        ["--set", "gpu.2.fb_memory_usage.total=@error 16"],
        lambda seen: [gpu["state"] for gpu in seen["gpus"]],
        ["ok"] * 2 + ["reset_required"] + ["ok"] * 5,
    ),
    "counters that nobody knows": (
        ["--set", "gpu.0.ecc_errors.volatile.dram_uncorrectable=@unknown"],
        lambda seen: [gpu["ecc"]["volatile"]["dram_uncorrected"] for gpu in seen["gpus"][:2]],
        [None, 0],
    ),
    "a driver without a call": (
        ["--without", "nvmlDeviceGetMarginTemperature"],
        lambda seen: "margin_c" in seen["gpus"][0]["temperature"],
        False,
    ),
    "a name with odd characters": (
        ["--set", "gpu.0.product_name=NVIDIA \N{REPLACEMENT CHARACTER}<H100> & \u00e9"],
        lambda seen: seen["gpus"][0]["name"],
        "NVIDIA \N{REPLACEMENT CHARACTER}<H100> & \u00e9",
    ),
    "links between the GPUs": (
        [],
        lambda seen: (seen["nvml"]["p2p_read"][0][:2], seen["gpus"][0]["nvlink"]["active"]),
        ([None, "ok"], 18),
    ),
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", FAULTS)
def test_simulated_fault(name: str) -> None:
    settings, look, wanted = FAULTS[name]
    seen = observe(*simulated("h100-sxm", *settings))["observed"]
    assert seen["errors"] == {}
    assert look(seen) == wanted
