# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container engines on laid-out hosts: what is left to do, what is not touched, and what is said of it."""

from __future__ import annotations

import json
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
IMPORTING = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
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
        ({}, ["docker"], [("runtime", "docker", "/etc/docker/daemon.json"), ("systemctl", "reload", "docker")]),
        ({}, ["containerd"], [("runtime", "containerd", "/etc/containerd/config.toml"),
                              ("systemctl", "restart", "containerd")]),
        # What does not run is not started.
        ({"/usr/bin/systemctl": "#!/bin/sh\nexit 3\n"}, ["docker"],
         [("runtime", "docker", "/etc/docker/daemon.json")]),
        ({"/etc/docker/daemon.json": DAEMON}, ["docker"], []),
        ({"/etc/docker/daemon.json": '{"log-driver": "local"}'}, ["docker"],
         [("runtime", "docker", "/etc/docker/daemon.json"), ("systemctl", "reload", "docker")]),
        ({"/etc/containerd/conf.d/99-nvidia.toml": DROP_IN,
          "/etc/containerd/config.toml": IMPORTING}, ["containerd"], []),
        # A run that broke off: nothing reads that file yet.
        ({"/etc/containerd/conf.d/99-nvidia.toml": DROP_IN}, ["containerd"],
         [("runtime", "containerd", "/etc/containerd/config.toml"), ("systemctl", "restart", "containerd")]),
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
        ({"/etc/docker/daemon.json": "{broken"}, "/etc/docker/daemon.json is no JSON in line 1 .*Nothing was changed"),
        ({"/etc/docker/daemon.json": '{\n// mine\n"a": 1}'}, "no JSON in line 2 .*JSON knows no comments"),
        ({"/etc/docker/daemon.json": "[]"}, "is no JSON object"),
        ({"/etc/docker/daemon.json": '{"runtimes": []}'}, "is no JSON object, or its runtimes are none"),
        ({"/etc/docker/daemon.json": '{"runtimes": {}, "runtimes": {}}'}, "has runtimes twice"),
        ({"/etc/docker/daemon.json": "\ufeff{}"}, "/etc/docker/daemon.json begins with a byte order mark"),
        ({"/etc/containerd/config.toml": "\ufeffversion = 2"}, "/etc/containerd/config.toml begins with a byte order"),
        ({"/etc/containerd/config.toml": 'disabled_plugins = ["cri"]\n'}, "config.toml is of form 1"),
        ({"/etc/containerd/config.toml": 'version = 2\na = """\n[b]"""\n'}, "has texts of several lines"),
    ],
)
def test_what_a_person_has_to_mend(host, files, words):
    with pytest.raises(ValueError, match=words):
        todo(host(**files), *(["containerd"] if "/etc/containerd/config.toml" in files else ["docker"]))


@pytest.mark.parametrize("name", ["docker", "containerd"])
def test_a_link_is_left_to_who_made_it(host, tmp_path, name):
    runner = host(**{"/srv/settings": "{}"})
    place = tmp_path / containers.FILES[name][1:]
    place.parent.mkdir(parents=True)
    place.symlink_to("/srv/settings")
    with pytest.raises(ValueError, match=f"{containers.FILES[name]} is a link to /srv/settings"):
        todo(runner, name)


WHOLE = json.dumps({"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}, indent=2) + "\n"
#: What a user wrote, in its own manner, and what it becomes: a line, or a part of one.
SETTINGS = [
    ("", WHOLE),
    (" { } \n", WHOLE),
    (
        '{\n\t"log-driver": "local",   \n  "zeta": [1, {"runtimes": 2}], "b" : "\\u00e4"\n}',
        '{\n\t"runtimes": {+},\n\t"log-driver": "local",   \n  "zeta": [1, {"runtimes": 2}], "b" : "\\u00e4"\n}',
    ),
    ('{"a":1,"runtimes" : {}, "b":2}', '{"a":1,"runtimes" : {+}, "b":2}'),
    (
        '{\r\n  "runtimes": {\r\n    "crun": {"path": "/usr/bin/crun"}\r\n  }\r\n}\r\n',
        '{\r\n  "runtimes": {\r\n    +,\r\n    "crun": {"path": "/usr/bin/crun"}\r\n  }\r\n}\r\n',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SETTINGS)
def test_dockers_settings_keep_every_byte(host, tmp_path, text, expected):
    runner = host(**{"/etc/docker/daemon.json": text})
    path = tmp_path / "etc/docker/daemon.json"
    if text:
        path.write_bytes(text.encode())
        path.chmod(0o600)
    for step in containers.steps(containers.look(runner), ["docker"])[:1]:
        containers.do(runner, step)
    named = '"nvidia": {"args": [], "path": "nvidia-container-runtime"}'
    assert path.read_bytes().decode() == expected.replace("+", named)
    assert path.stat().st_mode & 0o777 == (0o600 if text else 0o644)
    assert todo(runner, "docker") == []


#: As nvidia-ctk 1.20: the settings anew, and its file beside them.
STAND_IN = """#!/bin/sh
for word; do case $word in --config=*) config=${word#*=};; --drop-in-config=*) beside=${word#*=};; esac; done
mkdir -p "${beside%/*}"
cat > "$beside" <<'T'
TEXT
T
[ -e "$config" ] && echo 'rewritten' > "$config" || cat > "$config" <<'T'
IMPORTING
T
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "version = 2\nimports = [LINE]\n"),
        (
            '# mine\nversion = 2 # form\noom_score = -500\n\n[plugins]\n  a = "b"\n',
            '# mine\nversion = 2 # form\nimports = [LINE]\noom_score = -500\n\n[plugins]\n  a = "b"\n',
        ),
        ("version = 3", "version = 3\nimports = [LINE]\n"),
        (
            'imports = [\n  "/srv/a.toml",\n]\nversion = 3\n[plugins]\n',
            'imports = [LINE, \n  "/srv/a.toml",\n]\nversion = 3\n[plugins]\n',
        ),
        ("version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n",) * 2,
    ],
)
def test_containerds_settings_keep_every_byte(host, tmp_path, text, expected):
    runner = host(
        **{
            CTK: STAND_IN.replace("TEXT", DROP_IN).replace("IMPORTING", IMPORTING.strip()),
            "/etc/containerd/config.toml": text,
        }
    )
    for step in containers.steps(containers.look(runner), ["containerd"])[:1]:
        containers.do(runner, step)
    made = (tmp_path / "etc/containerd/config.toml").read_text()
    assert made == expected.replace("LINE", '"/etc/containerd/conf.d/*.toml"')
    assert todo(runner, "containerd") == []


def test_a_toolkit_without_files_of_its_own_is_too_old(host, tmp_path):
    ctk = "#!/bin/sh\necho 'Incorrect Usage: flag provided but not defined: -drop-in-config' >&2\nexit 1\n"
    runner = host(**{CTK: ctk, "/etc/containerd/config.toml": "version = 2\n"})
    with pytest.raises(ValueError, match=r"drop-in-config \(NVIDIA's container toolkit 1.18 or newer is needed"):
        containers.do(runner, ("runtime", "containerd", containers.CONTAINERD))
    assert (tmp_path / "etc/containerd/config.toml").read_text() == "version = 2\n"


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
