# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a value can say: texts, faults, change with time and calls; old drivers, and what is set through NVML."""

from __future__ import annotations

import typing as t

import pytest

pytestmark = pytest.mark.needs("gcc")

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
        (["gpu.3=@hidden"], "n.nvmlDeviceGetCount()", "7"),
        (["gpu.3=@gone"], "n.nvmlDeviceGetCount()", "7"),
        (["devices=0"], "n.nvmlDeviceGetCount()", "0"),
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
def test_a_value_can_say(simulator: t.Any, values: list[str], code: str, said: str) -> None:
    assert simulator.python("h100-sxm", f"print(({code}))", *values) == said


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
def test_the_fabric_health_mask_is_the_same_in_both(simulator: t.Any, mask: str, fields: dict[str, str]) -> None:
    code = """
info = n.c_nvmlGpuFabricInfo_v3_t()
n.nvmlDeviceGetGpuFabricInfoV(h, ctypes.byref(info))
old = n.c_nvmlGpuFabricInfo_v2_t()
n.nvmlDeviceGetGpuFabricInfoV(h, ctypes.byref(old))
print(hex(info.healthMask), hex(old.healthMask))
"""
    setting = f"fabric.health_mask={mask}"
    assert simulator.python("gb200", code, setting) == f"{int(mask, 16):#x} {int(mask, 16):#x}"
    log = simulator.smi("gb200", "-q", "-x", "-i", "0", values=[setting])[1]
    for name, text in fields.items():
        assert f"<{name}>{text}</{name}>" in log


def test_a_slow_call_takes_its_time_and_then_answers(simulator: t.Any) -> None:
    code = f"start = time.monotonic(); print({TEMPERATURE}, time.monotonic() - start >= 0.5)"
    assert simulator.python("t4", code, "gpu_temp=@slow 0.5s") == "33 True"


def test_a_call_that_hangs_does_not_end_and_can_be_killed(simulator: t.Any) -> None:
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
    assert simulator.python("t4", code, "gpu_temp=@hang") == "(0, 0) Tesla T4\n9"


@pytest.mark.parametrize(
    ("values", "missing", "code", "said"),
    [
        ([], ["nvmlDeviceGetTemperatureV"], "ask(n.nvmlDeviceGetTemperatureV, h, 0), " + TEMPERATURE,
         "('FunctionNotFound', 33)"),
        (["driver_version=535.261.03", "library_version=535.261.03"], [],
         "ask(n.nvmlDeviceGetMarginTemperature, h), ask(n.nvmlDeviceGetSramEccErrorStatus, h, None)",
         "('FunctionNotFound', 'FunctionNotFound')"),
        (["driver_version=470.256.02", "library_version=470.256.02"], [],
         "ask(n.nvmlDeviceGetComputeRunningProcesses, h), ask(n.nvmlDeviceGetCurrentClocksEventReasons, h), "
         "ask(n.nvmlDeviceGetCurrentClocksThrottleReasons, h)", "('NVMLLibraryMismatchError', 'FunctionNotFound', 1)"),
    ],
)  # fmt: skip
def test_an_old_driver_lacks_functions(
    simulator: t.Any, values: list[str], missing: list[str], code: str, said: str
) -> None:
    assert simulator.python("t4", f"print(({code}))", *values, missing=missing) == said


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (["driver_loaded=No"], "DriverNotLoaded"),
        (["library_version=580.178.01"], "LibRmVersionMismatch"),
        (["init=@error 999"], "Unknown"),
        (["init=ok | 1 calls: @lost"], "None then GpuIsLost"),
    ],
)
def test_nvml_may_not_start(simulator: t.Any, values: list[str], error: str) -> None:
    def start() -> str:
        import pynvml

        try:
            return str(pynvml.nvmlInit())
        except pynvml.NVMLError as found:
            return type(found).__name__[10:]

    _status, said = simulator.child("h100-sxm", lambda _folder: print(start(), "then", start()), values)
    assert said.strip() == (error if "then" in error else f"{error} then {error}")


def test_a_value_changes_while_a_process_runs(simulator: t.Any) -> None:
    change = "set_value('gpu/0/temperature/gpu_temp\\t88 C | 1 calls: @lost\\t0\\n'), time.sleep(0.02)"
    assert (
        simulator.python("t4", f"print({TEMPERATURE}); {change}; print({TEMPERATURE}, {TEMPERATURE})")
        == "33\n88 GpuIsLost"
    )
