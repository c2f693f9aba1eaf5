# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of simulated machines against the verdict, through unchanged pynvml: the table of docs/checks.md.

Every fault must be found by the checks that are named here and by no other.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import registry

ROOT = Path(__file__).resolve().parents[3]
SIMULATOR = ROOT / "tests" / "simulator"
PAGE = ROOT / "docs" / "checks.md"
pytestmark = pytest.mark.needs("gcc")


class Fault(t.NamedTuple):
    """One line of faults.tsv: what is set with gpusim, and what is found, by check "state, action"."""

    says: str
    machine: str
    settings: tuple[str, ...]
    found: t.Mapping[str, str]


def faults() -> t.Iterator[Fault]:
    for line in Path(__file__).with_name("faults.tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            says, machine, settings, found = [*line.split("\t"), "", ""][:4]
            wanted = dict(part.split(": ", 1) for part in found.split("; ") if part)
            yield Fault(says, machine, tuple(part for part in settings.split(" ; ") if part), wanted)


FAULTS = tuple(faults())

#: Healthy, and what is still said of them, with its reason.
EXPLAINED = {
    "rtx-4090": {"persistence": "warn, fix configuration"},  # a desktop's driver comes without it
    "rtx-5090": {"persistence": "warn, fix configuration"},
}
#: The simulated driver is no package's.
ALWAYS = {"driver-owners"}

#: Runs inside a simulation: sets, judges and puts back, one scenario a line.
JUDGE = """
import json, os, subprocess, sys
from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accelerator, driver, registry
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import runner, whole
for line in sys.stdin:
    scenario = json.loads(line)
    before = {}
    for path, text in scenario.get("files", {}).items():
        if os.path.exists(path):  # not every kernel has every one
            before[path] = open(path).read()
            open(path, "w").write(text + "\\n" if path != "/dev/kmsg" else before[path] + text)
    for change in (scenario["set"], None):
        values = change if change is not None else scenario["back"]
        if values:
            subprocess.run(["gpusim-set", *(f"{key}={value}" for key, value in values.items())], check=True)
        if change is not None:
            seen = whole.observe(runner.Runner())
            # The machine that runs the tests may be a virtual one, with limits of its own.
            seen["host"].update(virtualization="none", arch="x86_64", kernel="6.8.0")
            seen["settings"].update(governors="not_supported", battery=False)
            seen["limits"] = scenario["limits"]
            found = list(accelerator.decide(seen, accelerator.Policy(gpus_expected=scenario["gpus"])).findings)
            found += driver.check(seen) + registry.judge(seen)
            print(json.dumps([finding.to_dict() for finding in found]), flush=True)
    for path, text in before.items():
        open(path, "w").write(text)
"""

LIMITS = {
    "memlock": "unlimited",
    "open_files": 1048576,
    "configured": [],
    "shared_memory": 512 << 30,
    "files": {"used": 1000, "most": 1000000},
    "tasks": {"used": 1000, "most": 100000},
    "variables": [],
}


def simulate(machine: str, lines: t.Sequence[t.Mapping[str, t.Any]], *settings: str) -> list[t.Any]:
    """The findings of every scenario, in one simulation."""
    options = [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, str(SIMULATOR / "gpusim"), "--profile", machine, *options, "--", sys.executable, "-c", JUDGE],
        input="".join(json.dumps({"limits": LIMITS, **line}) + "\n" for line in lines),
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        timeout=300,
    )
    if done.returncode == 125:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return [[_finding.from_dict(item) for item in json.loads(line)] for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def simulation() -> t.Any:
    """The parts of gpusim that read profiles and settings."""
    sys.path.insert(0, str(SIMULATOR))
    yield [importlib.import_module(f"simulation.{name}") for name in ("profiles", "hardware", "scenario", "host")]
    sys.path.remove(str(SIMULATOR))


@pytest.fixture(scope="module")
def judged(simulation: t.Any) -> dict[str, list[_finding.Finding]]:
    """The findings of every fault. Those that come over a running machine share one simulation of it."""
    profiles, hardware, scenario, host = simulation
    jobs: list[tuple[str, list[str], list[t.Mapping[str, t.Any]], tuple[str, ...]]] = []
    for machine in sorted({one.machine for one in FAULTS}):
        values = profiles.load(machine)
        hardware.complete(values)
        count = int(values["sim/gpus"])
        shared = []
        for one in (one for one in FAULTS if one.machine == machine):
            changed = dict(values)
            for setting in one.settings:
                scenario.assign(changed, setting)
            new = {key: value for key, value in changed.items() if values.get(key) != value}
            lost = set(values) - set(changed)  # a group that became one text
            files = {f"/{path}": new.pop(f"sim/host/{name}") for name, (path, _usual) in host.FILES.items()
                     if f"sim/host/{name}" in new}  # fmt: skip
            if "sim/kernel_log" in new:
                lines = new.pop("sim/kernel_log").split(scenario.LINE_END)
                numbered = (f"6,{number},{number}000000,-;{line}\n" for number, line in enumerate(lines, 1000) if line)
                files["/dev/kmsg"] = "".join(numbered)
            if lost or any(
                key.endswith(("/sim/device", "/sim/acs", "/sim/iommu")) or not key.startswith("gpu/") for key in new
            ):
                jobs.append((machine, [one.says], [{"set": {}, "back": {}, "gpus": count}], one.settings))
            else:
                back = {key: values.get(key, "@absent") for key in new}
                shared.append((one.says, {"set": new, "back": back, "gpus": count, "files": files}))
        jobs.append((machine, [says for says, _line in shared], [line for _says, line in shared], ()))
    results: dict[str, list[_finding.Finding]] = {}
    # Longest first; a simulation waits for mounts and its compiler as much as it computes.
    jobs.sort(key=lambda job: -len(job[2]))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for (_machine, names, _lines, _settings), found in zip(
            jobs, pool.map(lambda job: simulate(job[0], job[2], *job[3]), jobs), strict=True
        ):
            results.update(zip(names, found, strict=True))
    return results


def loud(findings: t.Sequence[_finding.Finding]) -> dict[str, str]:
    """What is not in order, by check: state and action of its worst finding."""
    order = ("warn", "unknown", "fail")
    found: dict[str, str] = {}
    for one in findings:
        if one.state in order and one.check not in ALWAYS:
            before = found.get(one.check, "warn").split(",")[0]
            if order.index(one.state) >= order.index(before):
                found[one.check] = f"{one.state}, {one.action}"
    return found


@pytest.mark.parametrize("one", FAULTS, ids=lambda one: f"{one.machine}: {one.says}")
def test_a_fault_is_found_by_its_check_alone(judged: dict[str, list[_finding.Finding]], one: Fault) -> None:
    assert loud(judged[one.says]) == one.found


@pytest.mark.parametrize("machine", sorted(path.stem for path in (SIMULATOR / "profiles").glob("*.toml")))
def test_a_healthy_machine_has_nothing_to_explain(simulation: t.Any, machine: str) -> None:
    count = int(simulation[0].load(machine)["sim/gpus"])
    (findings,) = simulate(machine, [{"set": {}, "back": {}, "gpus": count}])
    assert loud(findings) == EXPLAINED.get(machine, {})
    assert _finding.fold(findings) == _finding.READY
    assert {one.check for one in findings} >= {check.name for check in registry.CHECKS}


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def page(judged: dict[str, list[_finding.Finding]]) -> str:
    """docs/checks.md."""
    lines = [HEAD, "| check | policy | what it means, limits, sources |", "| --- | --- | --- |"]
    lines += [f"| `{one.name}` | {one.policy} | {cell(str(one.judge.__doc__))} |" for one in registry.CHECKS]
    lines += [FAULTS_HEAD, "| fault | machine | `--set` | found | host |", "| --- | --- | --- | --- | --- |"]
    for one in (one for one in FAULTS if one.found):
        policies = {finding.check: finding.policy for finding in judged[one.says]}
        found = "; ".join(f"`{name}` {what} ({policies[name]})" for name, what in sorted(one.found.items()))
        lines.append(f"{_row(one)} {found} | {_finding.fold(judged[one.says]).replace('_', ' ')} |")
    lines += [QUIET_HEAD, "| what | machine | `--set` | host |", "| --- | --- | --- | --- |"]
    for one in (one for one in FAULTS if not one.found):
        lines.append(f"{_row(one)} {_finding.fold(judged[one.says]).replace('_', ' ')} |")
    return "\n".join(lines) + "\n"


def _row(one: Fault) -> str:
    settings = "<br>".join(f"`{setting}`" for setting in one.settings)
    return f"| {one.says} | {one.machine} | {cell(settings)} |"


HEAD = """# Health checks

With `judge`, `gpu_info` judges the health of each GPU; `plan.yml`, `site.yml` and `verify.yml` do so. This page is made
by `GPUFLEET_WRITE_DOCS=1 ./run pytest tests/integration/gpu_info/test_checks.py`, which runs every fault below on a
simulated machine, and without the variable compares.

A check answers `ok`, `warn`, `fail`, `unknown` (it could not tell) or `not_applicable`, and names what to do. With the
policy `block`, a `fail` makes the host not ready and an `unknown` makes it unknown; with `report` it stays ready. What
a GPU or its driver does not have is `not_applicable`; what that could not be read is `unknown`, never `ok`.

The policy of a check is yours: `gpufleet_policy: {power-limit: block, pcie-width: report}` in the inventory.

## Checks
"""

FAULTS_HEAD = """
## Faults and verdicts

`gpusim --profile MACHINE --set SETTING`; see [the simulator](simulator.md).
"""

QUIET_HEAD = """
## What is no fault

Values that look like faults and are none.
"""


def test_the_page_is_up_to_date(judged: dict[str, list[_finding.Finding]]) -> None:
    text = page(judged)
    if os.environ.get("GPUFLEET_WRITE_DOCS"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "GPUFLEET_WRITE_DOCS=1 writes docs/checks.md"


def module(**options: t.Any) -> subprocess.CompletedProcess[str]:
    """gpu_info on a simulated machine with a row that could not be remapped."""
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": options})
    script = (
        "from ansible_collections.gpufleet.pytorch.plugins.modules import gpu_info\n"
        "from ansible.module_utils import basic\n"
        f"basic._ANSIBLE_ARGS = {arguments.encode()!r}\n"
        "basic._ANSIBLE_PROFILE = 'legacy'\n"
        "gpu_info.main()\n"
    )
    command = [sys.executable, str(SIMULATOR / "gpusim"), "--profile", "h100-sxm"]
    command += ["--set", "gpu.2.remapped_rows.remapped_row_failure=Yes", "--", sys.executable, "-c", script]
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        timeout=120,
    )
    if done.returncode == 125:
        pytest.skip(done.stderr)
    return done


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, []),
        ({"judge": True}, [("fail", "block")]),
        ({"judge": True, "policy": {"row-remap-failure": "report"}}, [("fail", "report")]),
    ],
)
def test_the_module_judges_where_it_is_asked(options: t.Any, found: list[tuple[str, str]]) -> None:
    findings = json.loads(module(**options).stdout)["findings"]
    assert [(one["state"], one["policy"]) for one in findings if one["check"] == "row-remap-failure"] == found
    assert all(one["observed_at"] for one in findings)


def test_a_policy_that_is_none_is_refused() -> None:
    done = module(judge=True, policy={"power-limit": "blck"})
    assert json.loads(done.stdout)["msg"] == "policy is block or report, by check; found power-limit: blck"
