# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scenario can say: changing values, faults, old drivers, setters; and what nvidia-smi and the kernel show."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SIMULATOR = ROOT / "tests/simulator"
GPUSIM = [sys.executable, str(SIMULATOR / "gpusim")]
pytestmark = pytest.mark.needs("gcc")


def gpusim(
    profile: str, *command: str, options: t.Sequence[str] = (), **more: t.Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GPUSIM, "--profile", profile, *options, "--", *command], capture_output=True, text=True,
                          check=False, **more)  # fmt: skip


def settings(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def python(profile: str, code: str, *values: str, options: t.Sequence[str] = ()) -> str:
    """What CODE prints, which has pynvml as `n`, its first handle as `h`, and `ask` for a call that may fail."""
    prelude = """
import ctypes, os, sys, time
import pynvml as n
def ask(call, *arguments):
    try:
        return call(*arguments)
    except (n.NVMLError, n.NVMLLibraryMismatchError) as error:
        return type(error).__name__.replace("NVMLError_", "")
n.nvmlInit()
h = ask(n.nvmlDeviceGetHandleByIndex, 0)
"""
    done = gpusim(profile, sys.executable, "-c", prelude + code, options=[*settings(*values), *options])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


TEMPERATURE = "ask(n.nvmlDeviceGetTemperature, h, 0)"


@pytest.mark.parametrize(
    ("values", "code", "said"),
    [
        (["gpu.0.temperature.gpu_temp=95 C"], TEMPERATURE, "95"),
        (["gpu_temp=95"], TEMPERATURE, "95"),
        (["temperature.gpu_temp=@unsupported"], TEMPERATURE, "NotSupported"),
        (["temperature.gpu_temp=@unknown"], TEMPERATURE, "Unknown"),
        (["temperature.gpu_temp=@lost"], TEMPERATURE, "GpuIsLost"),
        (["temperature.gpu_temp=@denied"], TEMPERATURE, "NoPermission"),
        (["temperature.gpu_temp=@error 16"], TEMPERATURE, "ResetRequired"),
        (["temperature.gpu_temp=@absent"], TEMPERATURE, "NotSupported"),
        (["temperature.gpu_temp=odd \u00ff bytes"], TEMPERATURE, "Unknown"),
        (["gpu_temp=29 C | 2 calls: 80 C | 3 calls: @lost"], f"[{TEMPERATURE} for _ in range(5)]",
         "[29, 29, 80, 'GpuIsLost', 'GpuIsLost']"),
        (["gpu_temp=29 C | 0.4s: 80 C"], f"({TEMPERATURE}, time.sleep(0.9), {TEMPERATURE})[2]", "80"),
        (["temperature=@unknown"], TEMPERATURE, "Unknown"),
        (["remapped_rows=N/A"], "ask(n.nvmlDeviceGetRemappedRows, h)", "NotSupported"),
        (["volatile.dram_uncorrectable=3"], "n.nvmlDeviceGetTotalEccErrors(h, 1, 0)", "3"),
        (["ecc_errors=Unknown Error"], "ask(n.nvmlDeviceGetTotalEccErrors, h, 1, 0)", "Unknown"),
        (["ecc_mode=Unknown Error"], "ask(n.nvmlDeviceGetEccMode, h)", "Unknown"),
        (["gpu.0=@lost"], "h, type(ask(n.nvmlDeviceGetHandleByIndex, 1)).__name__",
         "('GpuIsLost', 'LP_struct_c_nvmlDevice_t')"),
        (["gpu.0=@unknown"], "h", "Unknown"),
        (["gpu.0=ok | 3 calls: @lost"], f"[{TEMPERATURE} for _ in range(3)]", "[29, 29, 'GpuIsLost']"),
        (["gpu.3=@hidden"], "n.nvmlDeviceGetCount(), os.path.exists('/sys/bus/pci/devices/0000:61:00.0')", "(7, True)"),
        (["gpu.3=@gone"], "n.nvmlDeviceGetCount(), os.path.exists('/sys/bus/pci/devices/0000:61:00.0')", "(7, False)"),
        (["devices=0"], "n.nvmlDeviceGetCount(), os.path.exists('/dev/nvidia7')", "(0, True)"),
        (["nvlink.5.state=Inactive"], "[n.nvmlDeviceGetNvLinkState(h, link) for link in (4, 5)]", "[1, 0]"),
        (["nvlink.5.replay=9"], "n.nvmlDeviceGetNvLinkErrorCounter(h, 5, 0)", "9"),
        (["nvlink=@unknown"], "ask(n.nvmlDeviceGetNvLinkState, h, 0)", "Unknown"),
        (["gpu_recovery_action=Reset"], "n.nvmlDeviceGetFieldValues(h, [230])[0].value.ullVal", "1"),
        (["clocks_event_reason_hw_slowdown=Active", "clocks_event_reason_hw_power_brake_slowdown=Active"],
         "hex(n.nvmlDeviceGetCurrentClocksEventReasons(h))", "0x89"),
        (["gpu_power_readings.current_power_limit=500"], "n.nvmlDeviceGetEnforcedPowerLimit(h)", "500000"),
        (["sim.p2p.1=CNS"], "n.nvmlDeviceGetP2PStatus(h, n.nvmlDeviceGetHandleByIndex(1), 0)", "1"),
        (["sim.inforom_valid=No"], "ask(n.nvmlDeviceValidateInforom, h)", "CorruptedInforom"),
    ],
)  # fmt: skip
def test_a_value_can_say(values: list[str], code: str, said: str) -> None:
    assert python("h100-sxm", f"print(({code}))", *values) == said


@pytest.mark.parametrize(
    ("mask", "fields"),
    [
        ("0xAA", {"bandwidth": "Full", "route_unhealthy": "False", "access_timeout_recovery": "False"}),
        ("0xA9", {"bandwidth": "Degraded", "route_unhealthy": "False"}),
        ("0x9A", {"bandwidth": "Full", "route_unhealthy": "True"}),
        ("0x00", {"bandwidth": "N/A", "route_unhealthy": "N/A"}),
        ("0x5AA", {"incorrect_configuration": "Insufficient NVLinks"}),
    ],
)
def test_the_fabric_health_mask_is_the_same_in_both(mask: str, fields: dict[str, str]) -> None:
    code = """
info = n.c_nvmlGpuFabricInfo_v3_t()
n.nvmlDeviceGetGpuFabricInfoV(h, ctypes.byref(info))
old = n.c_nvmlGpuFabricInfo_v2_t()
n.nvmlDeviceGetGpuFabricInfoV(h, ctypes.byref(old))
print(hex(info.healthMask), hex(old.healthMask), flush=True)
os.execvp("nvidia-smi", ["nvidia-smi", "-q", "-x", "-i", "0"])
"""
    said = python("gb200", code, f"fabric.health_mask={mask}")
    assert said.startswith(f"{int(mask, 16):#x} {int(mask, 16):#x}\n")
    for name, text in fields.items():
        assert f"<{name}>{text}</{name}>" in said


def test_a_slow_call_takes_its_time_and_then_answers() -> None:
    code = f"start = time.monotonic(); print({TEMPERATURE}, time.monotonic() - start >= 0.5)"
    assert python("t4", code, "gpu_temp=@slow 0.5s") == "33 True"


def test_a_call_that_hangs_does_not_end_and_can_be_killed() -> None:
    code = f"""
child = os.fork()
if child == 0:
    {TEMPERATURE}
    os._exit(0)
time.sleep(0.3)
print(os.waitpid(child, os.WNOHANG), n.nvmlDeviceGetName(h))
os.kill(child, 9)
print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""
    assert python("t4", code, "gpu_temp=@hang") == "(0, 0) Tesla T4\n9"


def test_a_stuck_call_cannot_be_killed_until_the_simulation_ends() -> None:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse, as root")
    code = f"""
child = os.fork()
if child == 0:
    {TEMPERATURE}
    os._exit(0)
time.sleep(0.3)
os.kill(child, 9)
deadline = time.monotonic() + 5
while (state := open(f"/proc/{{child}}/stat").read().split()[2]) != "D" and time.monotonic() < deadline:
    time.sleep(0.01)
print(os.waitpid(child, os.WNOHANG)[0], state, child)
"""
    gone, state, child = python("t4", code, "gpu_temp=@stuck").split()
    assert (gone, state) == ("0", "D")
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and "(zombie)" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--without", "nvmlDeviceGetTemperatureV"], "ask(n.nvmlDeviceGetTemperatureV, h, 0), " + TEMPERATURE,
         "('FunctionNotFound', 33)"),
        (["--set", "driver_version=535.261.03", "--set", "library_version=535.261.03"],
         "ask(n.nvmlDeviceGetMarginTemperature, h), ask(n.nvmlDeviceGetSramEccErrorStatus, h, None)",
         "('FunctionNotFound', 'FunctionNotFound')"),
        (["--set", "driver_version=470.256.02", "--set", "library_version=470.256.02"],
         "ask(n.nvmlDeviceGetComputeRunningProcesses, h), ask(n.nvmlDeviceGetCurrentClocksEventReasons, h), "
         "ask(n.nvmlDeviceGetCurrentClocksThrottleReasons, h)", "('NVMLLibraryMismatchError', 'FunctionNotFound', 1)"),
    ],
)  # fmt: skip
def test_an_old_driver_lacks_functions(options: list[str], code: str, said: str) -> None:
    assert python("t4", f"print(({code}))", options=options) == said


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (["driver_loaded=No"], "DriverNotLoaded"),
        (["library_version=580.178.01"], "LibRmVersionMismatch"),
        (["init=@error 999"], "Unknown"),
        (["init=ok | 1 calls: @lost"], "None then GpuIsLost"),
    ],
)
def test_nvml_may_not_start(values: list[str], error: str) -> None:
    code = """
import pynvml as n
def start():
    try:
        return n.nvmlInit()
    except n.NVMLError as error:
        return type(error).__name__[10:]
print(start(), 'then', start())
"""
    done = gpusim("h100-sxm", sys.executable, "-c", code, options=settings(*values))
    assert done.stdout.strip() == (error if "then" in error else f"{error} then {error}")


@pytest.mark.skipif(os.geteuid() != 0, reason="setters need root, as the real ones do")
def test_what_is_set_lasts_beyond_the_process() -> None:
    code = """
n.nvmlDeviceSetPowerManagementLimit(h, 500000)
n.nvmlDeviceSetPersistenceMode(h, 0)
n.nvmlDeviceSetEccMode(h, 0)
n.nvmlDeviceSetMigMode(h, 1)
print(ask(n.nvmlDeviceSetPowerManagementLimit, h, 800000), flush=True)
fields = "power.limit,enforced.power.limit,persistence_mode,ecc.mode.current,ecc.mode.pending,mig.mode.current"
command = f"nvidia-smi -i 0 --query-gpu={fields} --format=csv,noheader"
os.execvp("sh", ["sh", "-c", f"{command}; nvidia-smi -r -i 0; {command}"])
"""
    refused, before, _reset, _done, after = python("h100-sxm", code).splitlines()
    assert refused == "InvalidArgument"
    assert before == "500.00 W, 500.00 W, Disabled, Enabled, Disabled, Enabled"
    assert after == "500.00 W, 500.00 W, Disabled, Disabled, Disabled, Enabled"


def test_the_scenario_changes_while_a_process_runs() -> None:
    code = f"print({TEMPERATURE}, os.system('gpusim-set \"gpu.0.temperature.gpu_temp=88 C\"'), {TEMPERATURE})"
    assert python("t4", code) == "33 0 88"


PLAIN = """
import ctypes, os
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
h = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h))
print(os.getuid(), nvml.nvmlDeviceSetPersistenceMode(h, 1), len(os.listdir("/sys/bus/pci/drivers/nvidia")))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes a plain user")
def test_a_plain_user_has_the_same_machine_but_may_not_set() -> None:
    plain = "/usr/bin/python3"
    if subprocess.run([plain, "-c", "import tomllib"], check=False, capture_output=True).returncode:
        pytest.skip(f"{plain} is not a Python 3.11 that a plain user may run")
    header = [sys.executable, "-c", "from simulation import build; print(build.find_header())"]
    include = Path(subprocess.run(header, cwd=SIMULATOR, capture_output=True, text=True, check=True).stdout.strip())
    # pytest's own temporary folders, and perhaps this clone, are root's alone.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o777)
        shutil.copytree(SIMULATOR, f"{name}/simulator")
        shutil.copy2(include / "nvml.h", name)
        done = subprocess.run(
            [plain, "simulator/gpusim", "--profile", "h100-sxm", "--", plain, "-c", PLAIN],
            cwd=name, capture_output=True, text=True, check=False, user=65534, group=65534, extra_groups=[],
            env={"PATH": os.defpath, "HOME": name, "NVML_INCLUDE": name},
        )  # fmt: skip
    no_permission = 4
    assert (done.stdout.split(), done.stderr) == (["65534", str(no_permission), "8"], "")


@pytest.mark.parametrize(
    ("values", "arguments", "code", "said"),
    [
        ([], ["-L"], 0, r"GPU 7: NVIDIA H100 80GB HBM3 \(UUID: GPU-00000007-5a17-4e00-8000-00000000df00\)\n$"),
        ([], [], 0, r"NVIDIA-SMI 580.105.08 +Driver Version: 580.105.08 +CUDA Version: 13.0"),
        ([], ["topo", "-m"], 0, r"\nGPU4\tNV18\tNV18\tNV18\tNV18\t X (\tNV18){3}(\tSYS){4}\tPXB(\tNODE){3}\t56-111,168-223\t1\t\tN/A\n"),
        (["gpu.0.nvlink.2.state=Inactive"], ["topo", "-m"], 0, r"\nGPU0\t X \tNV17"),
        ([], ["topo", "-p2p", "r"], 0, r"\n GPU0\tX\tOK\tOK"),
        ([], ["nvlink", "--status", "-i", "0"], 0, r"\n\t Link 17: 26.562 GB/s\n$"),
        (["gpu.0.nvlink.2.state=Inactive"], ["nvlink", "-s", "-i", "0"], 0, r"Link 2: <inactive>\n\t Link 3: 26.5"),
        (["gpu.0.nvlink.2.recovery=4"], ["nvlink", "-e"], 0, r"Link 2: Recovery Errors: 4\n"),
        ([], ["--query-gpu=index,name,pci.bus_id,power.draw,memory.total,mig.mode.current,fan.speed", "--format=csv"],
         0,
         r"index, name, pci.bus_id, power.draw \[W\], memory.total \[MiB\], mig.mode.current, fan.speed \[%\]\n"
         r"0, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 68.57 W, 81559 MiB, Disabled, \[N/A\]\n"),
        ([], ["--query-gpu=ecc.errors.uncorrected.volatile.total,clocks_event_reasons.active,compute_cap",
              "--format=csv,noheader"], 0, r"^0, 0x0000000000000001, 9.0\n"),
        (["ecc_errors=Unknown Error"], ["--query-gpu=ecc.errors.corrected.aggregate.total", "--format=csv,noheader"], 0,
         r"^\[Unknown Error\]\n"),
        ([], ["--query-remapped-rows=gpu_bus_id,remapped_rows.failure", "--format=csv,noheader", "-i", "1"], 0,
         r"^00000000:43:00.0, No\n$"),
        ([], ["--query-gpu=no_such_field", "--format=csv"], 2, r'Field "no_such_field" is not a valid field to query'),
        ([], ["--no-such-option"], 2, r"Invalid combination"),
        ([], ["-i", "9", "-L"], 6, r"No devices were found"),
        (["devices=0"], ["-L"], 0, r"^No devices were found\n$"),
        (["driver_loaded=No"], [], 9, r"couldn't communicate with the NVIDIA driver"),
        (["library_version=580.178.01"], [], 18, r"Driver/library version mismatch\nNVML library version: 580.178\n"),
        (["gpu.3=@lost"], ["-q", "-x"], 15, r"^Unable to determine the device handle for GPU0000:61:00.0: GPU is lost"),
        (["gpu.3=@unknown"], ["-q", "-x"], 255, r"device handle for GPU0000:61:00.0: Unknown Error\n$"),
        ([], ["-pl", "90000"], 2, r"Invalid Argument"),
    ],
)  # fmt: skip
def test_nvidia_smi_answers(values: list[str], arguments: list[str], code: int, said: str) -> None:
    done = gpusim("h100-sxm", "nvidia-smi", *arguments, options=settings(*values))
    assert (done.returncode, done.stderr) == (code, "")
    assert re.search(said, done.stdout), done.stdout


def test_the_kernel_shows_the_same_machine() -> None:
    script = """
cat /proc/driver/nvidia/version /proc/driver/nvidia/gpus/0000:9d:00.0/information
cd /sys/bus/pci/devices/0000:9d:00.0
cat vendor device class numa_node local_cpulist current_link_speed current_link_width
readlink -f driver /sys/class/pci_bus/0000:9d/../../0000:9d:00.0
cat /sys/module/nvidia/version
ls /dev/nvidia3 /usr/local/bin/nvidia-smi
ls /sys/class/net | grep -c lo; ls /sys/fs/cgroup | wc -l | grep -vc '^0$'; head -c 0 /dev/null
ls /sys/bus/pci/devices/0000:0[6-9]:00.0/driver | wc -l
"""
    said = gpusim("h100-sxm", "sh", "-c", script).stdout
    assert "NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build" in said
    assert "GPU UUID: \t GPU-00000004-5a17-4e00-8000-000000009d00\n" in said
    assert "0x10de\n0x2330\n0x030200\n1\n56-111,168-223\n32.0 GT/s PCIe\n16\n" in said
    assert (
        "/sys/bus/pci/drivers/nvidia\n/sys/devices/pci0000:99/0000:99:01.0/0000:9a:00.0/0000:9b:01.0/0000:9d:00.0\n580.105.08\n"
        in said
    )
    assert "/dev/nvidia3\n/usr/local/bin/nvidia-smi\n1\n1\n" in said
    assert not Path("/sys/module/nvidia/version").exists() or not Path("/proc/driver/nvidia/gpus/0000:9d:00.0").exists()


def test_two_gpus_share_the_switch_of_their_pair() -> None:
    said = gpusim(
        "a100-sxm", "sh", "-c", "cd /sys/bus/pci/devices; readlink 0000:07:00.0 0000:0f:00.0 0000:47:00.0"
    ).stdout
    paths = [line.split("/")[4:] for line in said.splitlines()]
    assert paths[0][:3] == paths[1][:3] == ["pci0000:04", "0000:04:01.0", "0000:05:00.0"]
    assert paths[2][0] == "pci0000:44"


def test_the_kernel_log_is_what_was_given(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("[12345.678901] NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus.\n")
    script = "dmesg; cat /dev/kmsg; journalctl -k -o short-iso --no-pager"
    said = gpusim("h100-sxm", "sh", "-c", script, options=["--kernel-log", str(log)]).stdout.splitlines()
    message = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus."
    assert said[0] == f"[12345.678901] {message}"
    assert said[1] == f"6,0,12345678901,-;{message}"
    assert said[2].endswith(f" kernel: {message}")


@pytest.mark.parametrize("count", [0, 3, 16])
def test_a_machine_has_as_many_gpus_as_asked(count: int) -> None:
    done = gpusim("h100-sxm", "sh", "-c", "nvidia-smi -L; ls -d /sys/bus/pci/drivers/nvidia/0*; ls /dev/nvidia[0-9]*",
                  options=["--gpus", str(count)])  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 3 * count or (count == 0 and lines == ["No devices were found"])
    assert len(set(lines)) == len(lines)


def test_an_ansible_module_on_a_local_connection_sees_it() -> None:
    command = ["ansible", "localhost", "-c", "local", "-m", "ansible.builtin.command", "-a", "nvidia-smi -L"]
    done = gpusim("l4", *command, env={**os.environ, "ANSIBLE_PYTHON_INTERPRETER": sys.executable})
    assert "GPU 0: NVIDIA L4 (UUID: GPU-00000000-5a17-4e00-8000-000000003000)" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "h1000"], "there are a100-sxm, b200-sxm, gb200"),
        (["--capture", "/nowhere.xml"], "cannot read the capture /nowhere.xml: No such file"),
        (["--profile", "t4", "--set", "temperature.gpu_tmp=3"], "no such element"),
        (["--profile", "t4", "--set", "graphics_clock=3"], "is ambiguous: applications.clocks.graphics.clock"),
        (["--profile", "t4", "--set", "gpu.4.gpu_temp=3"], "there are 1 GPUs, numbered from 0"),
        (["--profile", "t4", "--set", "gpu_temp"], "give PATH=VALUE"),
        (["--profile", "t4", "--without", "nvmlNothing"], "has no such function"),
    ],
)
def test_a_scenario_that_cannot_be_made_says_why(arguments: list[str], said: str) -> None:
    done = subprocess.run([*GPUSIM, *arguments, "--", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said.replace("applications.clocks.graphics.clock", "applications_clocks.graphics_clock") in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("<nvidia_smi_log><gpu>", "is not a whole `nvidia-smi -q -x`"),
        ("<html/>", "holds <html>, not <nvidia_smi_log>"),
        ("", "is not a whole `nvidia-smi -q -x`"),
    ],
)
def test_a_broken_capture_says_so(tmp_path: Path, content: str, said: str) -> None:
    capture = tmp_path / "capture.xml"
    capture.write_text(content)
    done = subprocess.run(
        [*GPUSIM, "--capture", str(capture), "--", "true"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stderr) == (2, True)


def test_the_exit_status_is_the_commands_and_nothing_is_left_behind() -> None:
    before = set(Path("/tmp").glob("gpusim-*"))
    assert gpusim("t4", "sh", "-c", "exit 7").returncode == 7
    assert gpusim("t4", "sh", "-c", "kill -9 $$").returncode == 137
    assert gpusim("t4", "no-such-command-here").returncode == 127
    assert set(Path("/tmp").glob("gpusim-*")) <= before
