# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpusim as a command: the machine that a command sees, and what is said where none can be made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest

SIMULATOR = Path(__file__).resolve().parents[2] / "simulator"
GPUSIM = [sys.executable, str(SIMULATOR / "gpusim")]
TEMPERATURE = "n.nvmlDeviceGetTemperature(h, 0)"
pytestmark = pytest.mark.needs("gcc")


def python(simulator: t.Any, profile: str, code: str, *values: str) -> str:
    """What CODE prints in a simulated machine; it has pynvml as `n` and its first handle as `h`."""
    prelude = "import os, time\nimport pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\n"
    options = [word for value in values for word in ("--set", value)]
    done = simulator.gpusim(profile, sys.executable, "-c", prelude + code, options=options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout).strip()


def test_a_stuck_call_cannot_be_killed_until_the_simulation_ends(simulator: t.Any) -> None:
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
    gone, state, child = python(simulator, "t4", code, "gpu_temp=@stuck").split()
    assert (gone, state) == ("0", "D")
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and "(zombie)" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(os.geteuid() != 0, reason="setters need root, as the real ones do")
def test_what_is_set_lasts_beyond_the_process(simulator: t.Any) -> None:
    code = """
n.nvmlDeviceSetPowerManagementLimit(h, 500000)
n.nvmlDeviceSetPersistenceMode(h, 0)
n.nvmlDeviceSetEccMode(h, 0)
n.nvmlDeviceSetMigMode(h, 1)
try:
    n.nvmlDeviceSetPowerManagementLimit(h, 800000)
except n.NVMLError as error:
    print(type(error).__name__, flush=True)
fields = "power.limit,enforced.power.limit,persistence_mode,ecc.mode.current,ecc.mode.pending,mig.mode.current"
command = f"nvidia-smi -i 0 --query-gpu={fields} --format=csv,noheader"
os.execvp("sh", ["sh", "-c", f"{command}; nvidia-smi -r -i 0; {command}"])
"""
    refused, before, _reset, _done, after = python(simulator, "h100-sxm", code).splitlines()
    assert refused == "NVMLError_InvalidArgument"
    assert before == "500.00 W, 500.00 W, Disabled, Enabled, Disabled, Enabled"
    assert after == "500.00 W, 500.00 W, Disabled, Disabled, Disabled, Enabled"


def test_the_scenario_changes_while_a_process_runs(simulator: t.Any) -> None:
    code = f"print({TEMPERATURE}, os.system('gpusim-set \"gpu.0.temperature.gpu_temp=88 C\"'), {TEMPERATURE})"
    assert python(simulator, "t4", code) == "33 0 88"


PLAIN = """
import ctypes, os
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
h = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h))
print(os.getuid(), nvml.nvmlDeviceSetPersistenceMode(h, 1), len(os.listdir("/sys/bus/pci/drivers/nvidia")))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes a plain user")
def test_a_plain_user_has_the_same_machine_but_may_not_set(simulator: t.Any) -> None:
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


def test_the_kernel_shows_the_same_machine(simulator: t.Any) -> None:
    script = """
cat /proc/driver/nvidia/version /proc/driver/nvidia/gpus/0000:9d:00.0/information
cd /sys/bus/pci/devices/0000:9d:00.0
cat vendor device class numa_node local_cpulist current_link_speed current_link_width
readlink -f driver /sys/class/pci_bus/0000:9d/../../0000:9d:00.0
cat /sys/module/nvidia/version
ls /dev/nvidia3 /usr/local/bin/nvidia-smi
ls /sys/class/net | grep -c lo; ls /sys/fs/cgroup | wc -l | grep -vc '^0$'; head -c 0 /dev/null
for bus in 52 61; do test -e /sys/bus/pci/devices/0000:$bus:00.0; echo $?; done
nvidia-smi -L | wc -l
"""
    said = simulator.gpusim(
        "h100-sxm", "sh", "-c", script, options=["--set", "gpu.3=@hidden", "--set", "gpu.2=@gone"]
    ).stdout
    assert "NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build" in said
    assert "GPU UUID: \t GPU-00000004-5a17-4e00-8000-000000009d00\n" in said
    assert "0x10de\n0x2330\n0x030200\n1\n56-111,168-223\n32.0 GT/s PCIe\n16\n" in said
    assert (
        "/sys/bus/pci/drivers/nvidia\n/sys/devices/pci0000:99/0000:99:01.0/0000:9a:00.0/0000:9b:01.0/0000:9d:00.0\n580.105.08\n"
        in said
    )
    assert "/dev/nvidia3\n/usr/local/bin/nvidia-smi\n1\n1\n1\n0\n6\n" in said
    assert not Path("/sys/module/nvidia/version").exists() or not Path("/proc/driver/nvidia/gpus/0000:9d:00.0").exists()


def test_gpus_and_adapters_share_the_switch_of_their_group(simulator: t.Any) -> None:
    script = """
cd /sys/bus/pci/devices; readlink 0000:07:00.0 0000:0f:00.0 0000:0b:00.0 0000:47:00.0
cd /sys/class/infiniband/mlx5_0; readlink -f device; cat ports/1/rate ports/1/state
cat /sys/devices/system/node/node3/cpumap
"""
    said = simulator.gpusim(
        "a100-sxm", "sh", "-c", script, options=["--set", "nic.0.state=1: DOWN"]
    ).stdout.splitlines()
    paths = [line.split("/")[4:] for line in said[:4]]
    assert [path[:3] for path in paths[:3]] == [["pci0000:04", "0000:04:01.0", "0000:05:00.0"]] * 3
    assert paths[3][0] == "pci0000:44"
    assert said[4] == "/sys/devices/" + "/".join(paths[2])
    assert said[5:] == ["200 Gb/sec (4X HDR)", "1: DOWN", "ffff0000,00000000,00000000,00000000,ffff0000,00000000"]


def test_the_kernel_log_is_what_was_given(simulator: t.Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("[12345.678901] NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus.\n")
    script = "dmesg; cat /dev/kmsg; journalctl -k -o short-iso --no-pager"
    said = simulator.gpusim("h100-sxm", "sh", "-c", script, options=["--kernel-log", str(log)]).stdout.splitlines()
    message = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus."
    assert said[0] == f"[12345.678901] {message}"
    assert said[1] == f"6,0,12345678901,-;{message}"
    assert said[2].endswith(f" kernel: {message}")


@pytest.mark.parametrize("count", [0, 3, 16])
def test_a_machine_has_as_many_gpus_as_asked(simulator: t.Any, count: int) -> None:
    script = "nvidia-smi -L; ls -d /sys/bus/pci/drivers/nvidia/0*; ls /dev/nvidia[0-9]*"
    done = simulator.gpusim("h100-sxm", "sh", "-c", script, options=["--gpus", str(count)])
    lines = done.stdout.splitlines()
    assert len(lines) == 3 * count or (count == 0 and lines == ["No devices were found"])
    assert len(set(lines)) == len(lines)


def test_an_ansible_module_on_a_local_connection_sees_it(simulator: t.Any) -> None:
    command = ["ansible", "localhost", "-c", "local", "-m", "ansible.builtin.command", "-a", "nvidia-smi -L"]
    done = simulator.gpusim("l4", *command, env={**os.environ, "ANSIBLE_PYTHON_INTERPRETER": sys.executable})
    assert "GPU 0: NVIDIA L4 (UUID: GPU-00000000-5a17-4e00-8000-000000003000)" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "h1000"], "there are a100-sxm, azure-nd-a100-v4, b200-sxm, gb200"),
        (["--capture", "/nowhere.xml"], "cannot read the capture /nowhere.xml: No such file"),
        (["--profile", "t4", "--set", "temperature.gpu_tmp=3"], "no such element"),
        (["--profile", "t4", "--set", "graphics_clock=3"], "is ambiguous: applications.clocks.graphics.clock"),
        (["--profile", "t4", "--set", "gpu.4.gpu_temp=3"], "there are 1 GPUs, numbered from 0"),
        (["--profile", "t4", "--set", "gpu_temp"], "give PATH=VALUE"),
        (["--profile", "t4", "--without", "nvmlNothing"], "has no such function"),
    ],
)
def test_a_scenario_that_cannot_be_made_says_why(simulator: t.Any, arguments: list[str], said: str) -> None:
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
def test_a_broken_capture_says_so(simulator: t.Any, tmp_path: Path, content: str, said: str) -> None:
    capture = tmp_path / "capture.xml"
    capture.write_text(content)
    done = subprocess.run(
        [*GPUSIM, "--capture", str(capture), "--", "true"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stderr) == (2, True)


def test_the_exit_status_is_the_commands_and_nothing_is_left_behind(simulator: t.Any) -> None:
    before = set(Path("/tmp").glob("gpusim-*"))
    assert simulator.gpusim("t4", "sh", "-c", "exit 7").returncode == 7
    assert simulator.gpusim("t4", "sh", "-c", "kill -9 $$").returncode == 137
    assert simulator.gpusim("t4", "no-such-command-here").returncode == 127
    assert set(Path("/tmp").glob("gpusim-*")) <= before
