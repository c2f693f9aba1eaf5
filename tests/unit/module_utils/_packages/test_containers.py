# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container engines on laid-out hosts: what is left to do, what is not touched, and what is said of it."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import containers as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import containers
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

CTK = "/usr/bin/nvidia-ctk"
GENERATE = (CTK, "cdi", "generate", "--output=/etc/cdi/nvidia.yaml")
REFRESH = [
    ("systemctl", "enable", "nvidia-cdi-refresh.service"),
    ("systemctl", "restart", "nvidia-cdi-refresh.service"),
]
#: As nvidia-ctk 1.20 leaves them.
DAEMON = '{"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}'
DROP_IN = """version = 2

[plugins]

  [plugins."io.containerd.grpc.v1.cri"]

    [plugins."io.containerd.grpc.v1.cri".containerd]

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"
"""
UNIT = "/lib/systemd/system/nvidia-cdi-refresh.service"
SPEC = "kind: nvidia.com/gpu\n  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\n"


@pytest.fixture
def host(tmp_path):
    """A host with the three engines, of which Docker and containerd run, the guard's rule, and driver 580.95.05."""

    def lay(**files: str) -> Runner:
        tree = {
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  \n",
            containers.RULE: containers.RULE_TEXT,
            **{f"/usr/bin/{name}": "#!/bin/sh\n" for name in ("dockerd", "containerd", "podman", "systemctl")},
            **files,
        }
        for path, text in tree.items():
            place = tmp_path / path[1:]
            if text:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
                place.chmod(0o755)
        return Runner(str(tmp_path))

    return lay


def todo(runner: Runner, *wanted: str) -> list[tuple[str, ...]]:
    return [step[1:] if step[0] == "run" else step for step in containers.steps(containers.look(runner), wanted)]


@pytest.mark.parametrize(
    ("files", "wanted", "steps"),
    [
        ({}, [], []),
        ({containers.RULE: ""}, [], [("write", containers.RULE)]),
        ({}, ["docker"], [(CTK, "runtime", "configure", "--runtime=docker"), ("systemctl", "reload", "docker")]),
        ({}, ["containerd"], [(CTK, "runtime", "configure", "--runtime=containerd"),
                              ("systemctl", "restart", "containerd")]),
        # What does not run is not started.
        ({"/usr/bin/systemctl": "#!/bin/sh\nexit 3\n"}, ["docker"],
         [(CTK, "runtime", "configure", "--runtime=docker")]),
        ({"/etc/docker/daemon.json": DAEMON}, ["docker"], []),
        ({"/etc/docker/daemon.json": '{"log-driver": "local"}'}, ["docker"],
         [(CTK, "runtime", "configure", "--runtime=docker"), ("systemctl", "reload", "docker")]),
        ({"/etc/containerd/conf.d/99-nvidia.toml": DROP_IN}, ["containerd"], []),
        ({"/etc/containerd/config.toml": DROP_IN.replace("2", "3", 1)}, ["containerd"], []),
        ({}, ["podman"], [GENERATE]),
        ({"/etc/cdi/nvidia.yaml": SPEC}, ["podman"], []),
        ({"/etc/cdi/nvidia.yaml": SPEC.replace("580.95.05", "570.86.15")}, ["podman"], [GENERATE]),
        ({UNIT: "[Unit]"}, ["podman"], REFRESH),
        ({UNIT: "[Unit]", "/var/run/cdi/nvidia.yaml": SPEC}, ["podman"], []),
        # Without a driver there is nothing to describe.
        ({"/proc/driver/nvidia/version": ""}, ["podman"], []),
    ],
)  # fmt: skip
def test_what_is_left_to_do(host, files, wanted, steps):
    assert todo(host(**files), *wanted) == steps


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"/usr/bin/dockerd": ""}, "container_toolkit_for names docker, and this host has no dockerd"),
        ({"/etc/docker/daemon.json": "{broken"}, "/etc/docker/daemon.json is no JSON object"),
    ],
)
def test_what_a_person_has_to_mend(host, files, words):
    with pytest.raises(ValueError, match=words):
        todo(host(**files), "docker")


def test_a_node_without_a_link_gets_one(host, tmp_path):
    runner = host(**{"/dev/nvidia-caps/keep": "", containers.RULE: ""})
    (tmp_path / "dev").mkdir()
    try:
        for name, minor in (("nvidia0", 0), ("nvidiactl", 255), ("null", 3)):
            os.mknod(tmp_path / "dev" / name, 0o600 | 0o020000, os.makedev(195 if name != "null" else 1, minor))
    except PermissionError:
        pytest.skip("this user may make no device nodes")
    facts = containers.look(runner)
    assert facts["unlinked"] == {"nvidia0": "195:0", "nvidiactl": "195:255"}
    (finding,) = checks.judge(facts, [])
    assert (finding.check, finding.state) == ("container-guard", "warn")
    assert finding.found == "no link in /dev/char for /dev/nvidia0, /dev/nvidiactl"
    for step in containers.steps(facts, []):
        containers.do(runner, step)
    assert os.readlink(tmp_path / "dev/char/195:0") == "../nvidia0"
    assert (tmp_path / containers.RULE[1:]).read_text() == containers.RULE_TEXT
    assert todo(runner) == []
    assert checks.judge(containers.look(runner), [])[0].state == "ok"


def test_a_command_that_fails_says_so(host):
    runner = host(**{CTK: "#!/bin/sh\necho failed to create device nodes >&2\nexit 1\n"})
    with pytest.raises(ValueError, match=r"cdi generate .*: exit status 1: failed to create device nodes"):
        containers.do(runner, ("run", *GENERATE))


@pytest.mark.parametrize(
    ("files", "states"),
    [
        ({}, {"container-runtime": "fail", "container-cdi": "fail"}),
        ({"/etc/docker/daemon.json": DAEMON, "/etc/cdi/nvidia.yaml": SPEC},
         {"container-runtime": "ok", "container-cdi": "ok"}),
        ({"/etc/docker/daemon.json": DAEMON, "/etc/cdi/nvidia.yaml": SPEC, "/var/run/cdi/nvidia.yaml": SPEC},
         {"container-runtime": "ok", "container-cdi": "fail"}),
        ({"/etc/docker/daemon.json": DAEMON, "/proc/driver/nvidia/version": ""},
         {"container-runtime": "ok", "container-cdi": "not_applicable"}),
    ],
)  # fmt: skip
def test_what_is_said(host, files, states):
    found = checks.judge(containers.look(host(**files)), ["docker", "podman"])
    assert {one.check: one.state for one in found} == {"container-guard": "ok", **states}
