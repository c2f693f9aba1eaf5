# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with simulated GPUs, for simulate.yml: containers that are made, kept, restarted or removed as asked.

Reads what is asked as JSON from its input, {"directory", "state", "hosts", "profile", "gpus", "set", "image", "check"},
and prints {"changed", "inventory", "hosts": {NAME: {"box", "step"}}}. The directory gets the inventory, hosts.json, and
in .boxes, which Ansible passes over, what is known of the containers. Exit status 1 with one line says what is missing
or wrong.
"""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "collections")]

from simulation import hardware, profiles, scenario  # noqa: E402

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images  # noqa: E402

MOST = 64
#: A command and the Debian package that brings it.
NEEDED = {
    "podman": "podman",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "ssh": "openssh-client",
    "gcc": "gcc libc6-dev",
}
CAP_SYS_ADMIN = 21
#: Only a simulated sysfs has it, and only until the container stops.
MARK = "/sys/gpusim"
#: /dev/shm as large as 64 GPUs need, where podman gives 64 MiB. It is a limit, no memory.
SHARED_MEMORY = "64g"
#: An environment whose torch is a name alone, so that there is one to compare with. Its version says what it is.
ENVIRONMENT = """
python3 -m venv --without-pip /opt/gpufleet/simulated
cd /opt/gpufleet/simulated/lib/python3*/site-packages
mkdir torch-0+simulated.dist-info
printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 0+simulated\\n' > torch-0+simulated.dist-info/METADATA
"""
KEEP, CREATE, REPLACE, RESTART, REMOVE = "unchanged", "created", "replaced", "restarted", "removed"


class FleetError(Exception):
    """What is asked cannot be done; the text is one line for a person."""


@dataclasses.dataclass(frozen=True)
class Host:
    """A host as it is asked for, or as it is found. `machine` is what it is made of, `faults` what is set on it."""

    machine: tuple[str, ...]
    faults: tuple[str, ...]
    simulates: bool = True


def read(asked: t.Mapping[str, t.Any]) -> dict[str, Host]:
    """The hosts asked for, gpu1 and so on, each with a scenario that can be made. Raises FleetError."""
    if asked["state"] == "absent":
        return {}
    if asked["state"] != "present":
        raise FleetError(f"simulate_state is {asked['state']}; it can be present or absent")
    number = _number("simulate_hosts", asked["hosts"])
    gpus = _number("simulate_gpus", asked["gpus"]) if asked["gpus"] not in ("", None) else 0
    known = {*images.SUITES, *images.ON_TOP}
    if asked["image"] not in known:
        raise FleetError(f"simulate_image is {asked['image']}; it can be {', '.join(sorted(known))}")
    names = [f"gpu{count}" for count in range(1, number + 1)]
    settings = asked["set"]
    if not isinstance(settings, dict) or not all(isinstance(one, list) for one in settings.values()):
        raise FleetError('simulate_set takes a list for each host: {"gpu2": ["gpu.0.temperature.gpu_temp=95"]}')
    strange = sorted(set(settings) - set(names))
    if strange:
        raise FleetError(f"simulate_set names {', '.join(strange)}; the hosts are {names[0]} to {names[-1]}")
    try:
        healthy = profiles.load(asked["profile"])
        if gpus:
            hardware.clone_gpus(healthy, gpus)
        hardware.complete(healthy)
    except scenario.ScenarioError as error:
        raise FleetError(str(error).replace("--profile", "simulate_profile")) from None
    for name, setting in [(host, str(one)) for host in settings for one in settings[host]]:
        try:
            scenario.assign(copy.deepcopy(healthy), setting)
        except (scenario.ScenarioError, ValueError) as error:
            said = str(error).replace("--set ", "")
            raise FleetError(
                f"simulate_set: {name}: {setting}: {said}; docs/simulator.md says what can be set"
            ) from None
    machine = (asked["image"], asked["profile"], str(gpus or ""))
    return {name: Host(machine, tuple(map(str, settings.get(name, ())))) for name in names}


def _number(name: str, value: t.Any) -> int:
    if not str(value).isdigit() or not 1 <= int(value) <= MOST:
        raise FleetError(f"{name} is {value}; it can be 1 to {MOST}")
    return int(value)


def steps(wanted: t.Mapping[str, Host], found: t.Mapping[str, Host]) -> dict[str, str]:
    """What brings each host from what was found to what is wanted."""
    done = dict.fromkeys(found.keys() - wanted.keys(), REMOVE)
    for name, host in wanted.items():
        if name not in found:
            done[name] = CREATE
        elif found[name].machine != host.machine:
            done[name] = REPLACE
        else:
            done[name] = KEEP if found[name] == host else RESTART
    return done


def lacks() -> str:
    """What this machine lacks for simulated hosts, in one line; "" where it lacks nothing."""
    commands = [name for name in NEEDED if shutil.which(name) is None]
    if commands:
        packages = " ".join(NEEDED[name] for name in commands)
        return f"needs {', '.join(commands)}, not found in PATH; on Debian and Ubuntu: apt install {packages}"
    if os.geteuid() != 0:
        return f"needs root, to enter the mount namespaces of containers; this is user {os.geteuid()}. Run it with sudo"
    effective = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    if not int(effective.split()[1], 16) >> CAP_SYS_ADMIN & 1:
        return "needs the capability SYS_ADMIN, which this root lacks: run it on a machine or in a privileged container"
    return ""


def find(directory: Path) -> dict[str, Host]:
    """The hosts of this directory that there are, running or not."""
    label = f"label=gpufleet.run={_run(directory)}"
    found = {}
    for box in images.podman("ps", "--all", "--filter", label, "--format", "{{.Names}}").stdout.split():
        name = box.rpartition("-")[2]
        simulates = images.podman("exec", box, "test", "-e", MARK, check=False).returncode == 0
        try:
            known = json.loads(_note(directory, name).read_text(encoding="utf-8"))
            found[name] = Host(tuple(known["machine"]), tuple(known["faults"]), simulates)
        except (OSError, ValueError, KeyError):  # made by a run that was interrupted
            found[name] = Host((), ())
    return found


def bring(directory: Path, name: str, host: Host | None, step: str) -> None:
    """Does one step for one host."""
    run, box = _run(directory), boxes.full_name(_run(directory), name)
    if step in (REMOVE, REPLACE):
        _note(directory, name).unlink(missing_ok=True)
        images.podman("rm", "--force", "--time", "0", "--volumes", box)
    if host is None or step == KEEP:
        return
    if step == RESTART:
        images.podman("restart", "--time", "5", box)
        boxes.wait(box)
    else:
        boxes.start(run, name, host.machine[0], "--shm-size", SHARED_MEMORY)
        images.podman("exec", box, "sh", "-euc", ENVIRONMENT)
    # Noted first: without a simulation, the next run restarts the host.
    _note(directory, name).write_text(json.dumps({"machine": host.machine, "faults": host.faults}), encoding="utf-8")
    _image, profile, gpus = host.machine
    options = ["--profile", profile, *(["--gpus", gpus] if gpus else [])]
    for fault in host.faults:
        options += ["--set", fault]
    done = subprocess.run(
        [sys.executable, str(HERE / "gpusim"), *options, "--container", box],
        env=images.podman_environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode:
        raise FleetError(f"{name}: {done.stderr.strip()}")


def inventory(directory: Path, names: t.Iterable[str]) -> dict[str, t.Any]:
    """The inventory of these hosts. A user sets more for them in group_vars beside it, which nobody overwrites."""
    run = _run(directory)
    variables = {
        "ansible_user": "root",
        "ansible_ssh_common_args": f"-F '{run}/ssh_config'",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    hosts = {name: {"ansible_host": boxes.full_name(run, name)} for name in names}
    return {"all": {"children": {"simulated": {"hosts": hosts, "vars": variables}}}}


def _run(directory: Path) -> Path:
    return directory / ".boxes"


def _note(directory: Path, name: str) -> Path:
    return _run(directory) / f"{name}.json"


def main(asked: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Does what is asked, or with "check" says what it would do. Raises FleetError, RuntimeError."""
    problem = lacks()
    if problem:
        raise FleetError(f"simulate.yml {problem}")
    directory = Path(asked["directory"])
    wanted = read(asked)
    planned = steps(wanted, find(directory))
    path = directory / "hosts.json"
    text = json.dumps(inventory(directory, wanted), indent=2) + "\n" if wanted else ""
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    told = {
        "changed": text != written or any(step != KEEP for step in planned.values()),
        "inventory": str(directory),
        "hosts": {
            name: {"box": boxes.full_name(_run(directory), name), "step": step} for name, step in planned.items()
        },
    }
    if asked["check"] or not told["changed"]:
        return told
    _run(directory).mkdir(parents=True, exist_ok=True)
    boxes.ssh_config(_run(directory) / "ssh_config")
    if wanted:
        images.ensure(asked["image"])
    # Each takes turns of podman and of a compiler: more at once are not sooner there.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [pool.submit(bring, directory, name, wanted.get(name), step) for name, step in planned.items()]
    problems = [str(one.exception()) for one in work if one.exception()]
    if problems:
        raise FleetError("; ".join(problems))
    if wanted:
        path.write_text(text, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)
        shutil.rmtree(_run(directory), ignore_errors=True)
    return told


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.load(sys.stdin))))
    except (FleetError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.exit(str(error))
