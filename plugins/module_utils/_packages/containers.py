# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker, containerd and podman with GPUs: what is set up for them, what is left to do, and the doing.

What a user wrote stays as it is, byte for byte (engine_files.py). containerd's form differs by release: ``nvidia-ctk``
makes a file of its own beside a copy of the settings, which import it. Nothing is asked where the runtime is there, and
we look afterwards. No unit of ours is added: a ``systemctl daemon-reload`` under a container that has
GPUs takes them away, unless /dev/char has a link for each node (NVIDIA/nvidia-container-toolkit#48).
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import engine_files
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
DROP_IN = f"{CONTAINERD_FOLDER}/99-nvidia.toml"
FILES = {"docker": DOCKER, "containerd": CONTAINERD}
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

    ``engines``: by name ``{there, runtime, odd, active}``, ``odd`` why its settings cannot be added to;
    ``unlinked``: GPU nodes without a link in /dev/char, as ``{node: "195:0"}``; ``cdi``: ``{service, paths, drivers}``.
    """
    texts = [runner.read(CONTAINERD) or ""]
    if engine_files.imports(texts[0], DROP_IN):
        texts += [runner.read(f"{CONTAINERD_FOLDER}/{name}") or "" for name in runner.listdir(CONTAINERD_FOLDER)]
    runtimes = {"docker": _of_docker(runner), "containerd": any(_TABLE.search(text) for text in texts)}
    odd = {name: "" if runtimes[name] else _odd(runner, name) for name in FILES}
    paths = [path for path in (CDI_OURS, CDI_SERVICE) if runner.exists(path)]
    specs = [runner.read(path) or "" for path in paths]
    return {
        "ctk": runner.exists(CTK),
        "engines": {
            name: {"there": runner.which(program) is not None, "runtime": runtimes.get(name, False),
                   "odd": odd.get(name, ""),
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


def _of_docker(runner: Runner) -> bool:
    """Whether daemon.json has the runtime."""
    try:
        return "nvidia" in (json.loads(runner.read(DOCKER) or "{}").get("runtimes") or {})
    except (ValueError, AttributeError):
        return False


def _odd(runner: Runner, name: str) -> str:
    """Why nothing can be added to an engine's settings, "" where it can."""
    if runner.link(FILES[name]) is not None:
        target = runner.realpath(FILES[name])
        return (
            f"is a link to {target}, which somebody else may write: put a file in its place, or add the runtime there"
        )
    try:
        _added(runner, name)
    except ValueError as error:
        return str(error)
    return ""


def _added(runner: Runner, name: str) -> str:
    """An engine's settings with what is ours, "" of containerd where there is no file. Raises ValueError."""
    text = engine_files.decoded(runner.read_bytes(FILES[name]) or b"")
    if name == "docker":
        return engine_files.with_runtime(text)
    return engine_files.with_import(text) if text.strip() else ""


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
        if engine["odd"]:
            raise ValueError(f"{FILES[name]} {engine['odd']}. Nothing was changed")
        if name != "podman" and not engine["runtime"]:
            todo.append(("runtime", name, FILES[name]))
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
    if step[0] == "runtime":
        return f"add the runtime nvidia to {step[2]}"
    return " ".join(step[1:] if step[0] == "run" else step)


def do(runner: Runner, step: Step) -> None:
    """Do one step. Raises OSError, or ValueError with what a command said."""
    if step[0] == "link":
        os.makedirs(runner.path("/dev/char"), exist_ok=True)
        os.symlink(f"../{step[1]}", runner.path(f"/dev/char/{step[2]}"))
    elif step[0] == "write":
        write_atomic(runner.path(RULE), RULE_TEXT)
    elif step[0] == "runtime":
        text = _added(runner, step[1])
        if step[1] == "containerd":
            text = _beside(runner, text)
        write_atomic(runner.path(step[2]), text, runner.mode(step[2]) or 0o644)
    else:
        _run(runner, step[1:])


def _beside(runner: Runner, text: str) -> str:
    """Let nvidia-ctk make its file beside a copy of containerd's settings; the settings that import it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "config.toml")
        if text:
            with open(copy, "w", encoding="utf-8") as stream:
                stream.write(text)
        _run(runner, (CTK, "runtime", "configure", "--runtime=containerd", f"--config={copy}",
                      f"--drop-in-config={runner.path(DROP_IN)}"))  # fmt: skip
        with open(copy, encoding="utf-8") as stream:
            return text or stream.read()


def _run(runner: Runner, command: t.Sequence[str]) -> None:
    problem = runner.run(list(command), LIMIT).problem
    if "drop-in-config" in problem:
        problem += " (NVIDIA's container toolkit 1.18 or newer is needed: set container_toolkit_version)"
    if problem:
        raise ValueError(f"{' '.join(command)}: {problem}")
