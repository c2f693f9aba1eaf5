# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker, containerd and podman with GPUs: what is set up for them, what is left to do, and the doing.

``nvidia-ctk`` edits the engines' own files, since their form differs by release; we ask it only where the runtime is
not there yet, and look afterwards. No unit of ours is added: a ``systemctl daemon-reload`` under a container that has
GPUs takes them away, unless /dev/char has a link for each node (NVIDIA/nvidia-container-toolkit#48).
"""

from __future__ import annotations

import json
import os
import re
import stat
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.libraries import loaded_module
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

CTK = "/usr/bin/nvidia-ctk"
#: Links for all nodes that can be, at each load of the driver: the nodes of a boot come one by one.
RULE = "/etc/udev/rules.d/71-gpufleet-dev-char.rules"
RULE_TEXT = (
    "# Written by the role gpufleet.pytorch.container_toolkit: GPUs stay in containers over systemctl daemon-reload.\n"
    f'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", RUN+="{CTK} system create-dev-char-symlinks --create-all"\n'
)
DOCKER = "/etc/docker/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
CONTAINERD_FOLDER = "/etc/containerd/conf.d"
#: Ours, and that of NVIDIA's service (1.18 and later). Two with one device in both are refused by every engine.
CDI_OURS, CDI_SERVICE = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
REFRESH = "nvidia-cdi-refresh.service"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
PROGRAMS = {"docker": "dockerd", "containerd": "containerd", "podman": "podman"}
LIMIT = 60.0

_NODE = re.compile(r"^nvidia(?:\d+|ctl|-uvm|-uvm-tools|-modeset)$")
_TABLE = re.compile(r"^\s*\[.*\.runtimes\.[\"']?nvidia[\"']?\]\s*$", re.MULTILINE)
_DRIVER = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d+(?:\.\d+)+)")

Facts = t.Dict[str, t.Any]
Step = t.Tuple[str, ...]


def look(runner: Runner) -> Facts:
    """What is there: ``{ctk, engines, unlinked, rule, cdi, driver}``.

    ``engines``: by name ``{there, runtime, active}``; ``unlinked``: GPU nodes without a link in /dev/char, as ``{node:
    "195:0"}``; ``cdi``: ``{service, paths, drivers}``.
    """
    texts = [runner.read(CONTAINERD) or ""]
    texts += [runner.read(f"{CONTAINERD_FOLDER}/{name}") or "" for name in runner.listdir(CONTAINERD_FOLDER)]
    runtimes = {"docker": _of_docker(runner), "containerd": any(_TABLE.search(text) for text in texts)}
    paths = [path for path in (CDI_OURS, CDI_SERVICE) if runner.exists(path)]
    specs = [runner.read(path) or "" for path in paths]
    return {
        "ctk": runner.exists(CTK),
        "engines": {
            name: {"there": runner.which(program) is not None, "runtime": runtimes.get(name, False),
                   "active": name in runtimes and runner.run(["systemctl", "is-active", "--quiet", name]).rc == 0}
            for name, program in PROGRAMS.items()
        },
        "unlinked": unlinked(runner),
        "rule": runner.read_bytes(RULE) == RULE_TEXT.encode(),
        "cdi": {
            "service": any(runner.exists(f"{folder}/{REFRESH}") for folder in UNIT_FOLDERS),
            "paths": paths,
            "drivers": sorted({found for text in specs for found in _DRIVER.findall(text)}),
        },
        "driver": loaded_module(runner)["version"],
    }  # fmt: skip


def _of_docker(runner: Runner) -> t.Optional[bool]:
    """Whether daemon.json has the runtime; None where it cannot be read as JSON, which stops Docker too."""
    text = runner.read(DOCKER)
    if not text:
        return False
    try:
        return "nvidia" in (json.loads(text).get("runtimes") or {})
    except (ValueError, AttributeError):
        return None


def unlinked(runner: Runner) -> t.Dict[str, str]:
    """GPU nodes that have no link under /dev/char, with their numbers."""
    found = {}
    names = [name for name in runner.listdir("/dev") if _NODE.match(name)]
    for name in names + [f"nvidia-caps/{name}" for name in runner.listdir("/dev/nvidia-caps")]:
        try:
            node = os.stat(runner.path(f"/dev/{name}"))
        except OSError:
            continue
        number = f"{os.major(node.st_rdev)}:{os.minor(node.st_rdev)}"
        if stat.S_ISCHR(node.st_mode) and not os.path.lexists(runner.path(f"/dev/char/{number}")):
            found[name] = number
    return found


def steps(facts: t.Mapping[str, t.Any], wanted: t.Sequence[str]) -> t.List[Step]:
    """What is left to do, the guard first. Raises ValueError for what a person has to mend. Pure."""
    todo: t.List[Step] = [("link", node, number) for node, number in sorted(facts["unlinked"].items())]
    if not facts["rule"]:
        todo.append(("write", RULE))
    missing = [name for name in wanted if not facts["engines"][name]["there"]]
    if missing:
        raise ValueError(
            f"container_toolkit_for names {', '.join(missing)}, and this host has no"
            f" {' and no '.join(PROGRAMS[name] for name in missing)}: install it first, or leave it out"
        )
    for name in wanted:
        engine = facts["engines"][name]
        if engine["runtime"] is None:
            raise ValueError(f"{DOCKER} is no JSON object: Docker does not start with it; correct it")
        if name != "podman" and not engine["runtime"]:
            todo.append(("run", CTK, "runtime", "configure", f"--runtime={name}"))
            if engine["active"]:
                # Docker reads its runtimes again; containerd's containers outlive a restart of it.
                todo.append(("run", "systemctl", "reload" if name == "docker" else "restart", name))
    if "podman" in wanted and facts["driver"]:
        todo += _spec(facts["cdi"], str(facts["driver"]))
    return todo


def _spec(cdi: t.Mapping[str, t.Any], driver: str) -> t.List[Step]:
    if cdi["drivers"] == [driver]:
        return []
    todo: t.List[Step] = []
    if CDI_OURS in cdi["paths"] or not cdi["service"]:
        todo.append(("run", CTK, "cdi", "generate", f"--output={CDI_OURS}"))
    if cdi["service"]:
        todo += [("run", "systemctl", "enable", REFRESH), ("run", "systemctl", "restart", REFRESH)]
    return todo


def said(step: Step) -> str:
    """A step for a person."""
    if step[0] == "link":
        return f"/dev/char/{step[2]} -> ../{step[1]}"
    return " ".join(step[1:] if step[0] == "run" else step)


def do(runner: Runner, step: Step) -> None:
    """Do one step. Raises OSError, or ValueError with what a command said."""
    if step[0] == "link":
        os.makedirs(runner.path("/dev/char"), exist_ok=True)
        os.symlink(f"../{step[1]}", runner.path(f"/dev/char/{step[2]}"))
    elif step[0] == "write":
        write_atomic(runner.path(RULE), RULE_TEXT)
    else:
        problem = runner.run(list(step[1:]), LIMIT).problem
        if problem:
            raise ValueError(f"{said(step)}: {problem}")
