# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of a bundle by the real apt: gathered where repositories are reached, installed where there is no network.

Neither host has a network. Debian's repository is a folder of the one that gathers, NVIDIA's is on its loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import closure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Apt, PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import manifest
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer
from ansible_collections.gpufleet.pytorch.tests.containers import boxes, debs, images

ROOT = Path(__file__).resolve().parents[3]
ARCHIVE: list[debs.Package] = [
    ("stand-in-driver", "535.261.03-1", "stand-in-smi (= 535.261.03-1), stand-in-tool", {}),
    ("stand-in-driver", "550.163.01-1", "stand-in-smi (= 550.163.01-1)", {}),
    ("stand-in-smi", "535.261.03-1", "", {}),
    ("stand-in-smi", "550.163.01-1", "", {}),
    ("stand-in-tool", "1:2.0-1", "", {}),
    ("broken", "1.0-1", "nowhere-to-be-had", {}),
]
pytestmark = pytest.mark.needs("apt-get", "dpkg-deb")


@pytest.fixture
def apt(tmp_path):
    """apt with lists of its own that knows the stand-in archive alone."""
    debs.build(tmp_path / "archive", ARCHIVE)
    scratch = tmp_path / "scratch"
    for folder in ("etc/sources.list.d", "etc/preferences.d", "lists/partial", "cache/archives/partial"):
        (scratch / folder).mkdir(parents=True)
    source = closure.source(str(tmp_path / "archive"))
    (scratch / "etc/sources.list.d/archive.list").write_text(source)
    made = Apt(Runner(), 10, 60, str(scratch))
    made.update()
    return made


def test_the_closure_is_all_that_is_needed_and_no_more(apt, tmp_path):
    paths = closure.download(apt, ["stand-in-driver=535.261.03-1", "stand-in-smi=535.261.03-1"], str(tmp_path))
    names = sorted(Path(path).name.rpartition("_")[0] for path in paths)
    assert names == ["stand-in-driver_535.261.03-1", "stand-in-smi_535.261.03-1", "stand-in-tool_2.0-1"]


def test_what_no_source_has_is_told_in_apts_words(apt, tmp_path):
    with pytest.raises(PackageFailure, match="nowhere-to-be-had"):
        closure.download(apt, ["broken"], str(tmp_path))


#: Of Debian, by real name: what NVIDIA's packages need of it.
DEBIAN: list[debs.Package] = [
    ("dkms", "3.0.10-8", "gcc", {}),
    ("gcc", "4:12.2.0-3", "gcc-12", {}),
    ("gcc-12", "12.2.0-14", "", {}),
    ("linux-headers-amd64", "6.1.170-1", "", {}),
]
WISHES = {
    "cuda_packages": True,
    "cudnn_packages": True,
    "nccl_packages": True,
    "container_toolkit_for": ["podman"],
    "container_toolkit_version": "1.19.0",
}
#: Where a fleet's inventory says that the mirror is; on the host without a network it answers nobody.
MIRROR = "http://127.0.0.1:8081"


def nvidia() -> list[debs.Package]:
    found: list[debs.Package] = []
    for version in ("580.95.05-1", "580.105.08-1", "590.48.01-1"):
        branch = version.split(".", 1)[0]
        library = {f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version[:-2]}": "", f"/usr/share/libcuda1/{version}": ""}
        found += [
            ("libcuda1", version, "", library),
            ("nvidia-driver-cuda", version, f"libcuda1 (= {version})", {}),
            ("nvidia-kernel-open-dkms", version, "dkms", {}),
            ("nvidia-open", version, "nvidia-kernel-open-dkms, nvidia-driver-cuda", {}),
            ("nvidia-persistenced", version, "", {}),
            (f"nvidia-fabricmanager-{branch}", version, "", {}),
        ]
    found += [("nvidia-driver-pinning-580", "580-1", "", {}), ("cuda-toolkit-12-6", "12.6.3-1", "cuda-nvcc-12-6", {})]
    found += [("cuda-nvcc-12-6", "12.6.85-1", "gcc", {})]
    for version in ("9.10.2.21-1", "9.99.0.1-1"):
        found += [(f"libcudnn9{dev}-cuda-12", version, "", {}) for dev in ("", "-dev")]
    for version in ("2.30.7-1+cuda12.9", "2.99.1-1+cuda12.9"):
        found += [("libnccl2", version, "", {}), ("libnccl-dev", version, f"libnccl2 (= {version})", {})]
    for version in ("1.19.0-1", "1.20.0-1"):
        found += [
            ("libnvidia-container1", version, "", {}),
            ("libnvidia-container-tools", version, f"libnvidia-container1 (>= {version})", {}),
            ("nvidia-container-toolkit-base", version, "", {}),
            (
                "nvidia-container-toolkit",
                version,
                f"nvidia-container-toolkit-base (= {version}), libnvidia-container-tools (>= {version})",
                {},
            ),
        ]
    return found


class Fleet:
    """A host that gathers and one that installs, with one plan, and what a controller does to them."""

    def __init__(self, run: Path) -> None:
        self.run, self.bundle = run, run / "bundle"
        debs.build(run / "archive/debian", DEBIAN)
        debs.build(run / "archive/nvidia", nvidia())
        self.fingerprint = debs.sign(run / "archive/nvidia", "3bf863cc.pub", "NVIDIA")
        archive = ("--volume", f"{run}/archive:/srv/archive:ro")
        self.boxes = {
            "gatherer": boxes.start(run, "gatherer", "debian12", "--network", "none", *archive),
            "fleet": boxes.start(run, "fleet", "debian12", "--network", "none"),
        }
        self.sh("gatherer", "rm -rf /etc/apt/sources.list*; echo 'deb [trusted=yes] file:/srv/archive/debian ./' >"
                            " /etc/apt/sources.list")  # fmt: skip
        serve = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", "/srv/archive/nvidia", "8081"]
        images.podman("exec", "--detach", self.boxes["gatherer"], *serve)
        system = {"os_id": "debian", "os_version": "12", "arch": "x86_64", "python": "3.11"}
        board = {"gpus": ["NVIDIA A100-SXM4-40GB"], "nvswitch": 6}
        wish = {"driver_policy": "580", "driver_source": "nvidia", "cuda": "12.6"}
        settings = boxes.ssh_config(run / "ssh_config")
        hosts = {
            name: {"ansible_host": box, "ansible_ssh_common_args": f"-F '{settings}'"}
            for name, box in self.boxes.items()
        }
        variables = {
            "ansible_python_interpreter": "/usr/bin/python3",
            "gpufleet_plan": answer.answer("latest", {**system, **board, **wish}),
            "gpufleet_observed": {"host": {"os": {"id": "debian", "version": "12"}, "arch": "x86_64"}},
            "gpufleet_mode": "image",
            "nvidia_repository_url": MIRROR,
            "nvidia_repository_fingerprint": self.fingerprint,
            **WISHES,
        }
        (run / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts, "vars": variables}}))

    def sh(self, host: str, script: str) -> str:
        """What a shell on the host prints; a failure raises."""
        return images.podman("exec", self.boxes[host], "bash", "-euc", script).stdout.strip()

    def play(self, host: str, tasks: list[dict[str, t.Any]], *words: str, **variables: t.Any) -> tuple[int, str]:
        """The exit and the words of a play."""
        book = self.run / "play.yml"
        book.write_text(json.dumps([{"hosts": host, "gather_facts": False, "tasks": tasks}]))
        command = ["ansible-playbook", "-i", str(self.run / "hosts.yml"), str(book), "-e", json.dumps(variables)]
        done = subprocess.run(
            [*command, *words],
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def gather(self) -> tuple[int, str]:
        task = {"ansible.builtin.import_role": {"name": "gpufleet.pytorch.bundle", "tasks_from": "packages"}}
        return self.play("gatherer", [task], bundle_directory=str(self.bundle))

    def install(self, *words: str) -> tuple[int, str]:
        # Each part is a run of the package manager: two of them are enough to see that they come from the bundle.
        tasks: list[dict[str, t.Any]] = [
            {"ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/packages.yml")},
            # The engines' role is none for an image, and this host is one as far as its driver is concerned.
            {
                "gpufleet.pytorch.planned_packages": {
                    "plan": "{{ gpufleet_plan }}",
                    "part": "container_toolkit",
                    "version": WISHES["container_toolkit_version"],
                },
                "environment": "{{ bundle_placed.environment }}",
                "when": "not ansible_check_mode",
            },
        ]
        off = dict.fromkeys(("cuda_packages", "cudnn_packages", "nccl_packages"), False)
        return self.play("fleet", tasks, *words, gpufleet_bundle=str(self.bundle), **off)

    def state(self, host: str) -> str:
        """What is installed and held, and all that apt is told of sources and keys."""
        told = "find /etc/apt -type f | sort | xargs sha256sum"
        ours = "ls -d /run/gpufleet* /var/lib/gpufleet /var/tmp/gpufleet* || :"
        return self.sh(host, f"dpkg-query -W; apt-mark showhold; {told}; {ours}")


@pytest.fixture
def fleet(tmp_path: Path) -> t.Iterator[Fleet]:
    try:
        yield Fleet(tmp_path)
    finally:
        boxes.remove(tmp_path)


@pytest.mark.container
@pytest.mark.needs("gpg")
def test_gathered_here_and_installed_without_a_network(fleet: Fleet) -> None:
    before = fleet.state("gatherer")
    code, output = fleet.gather()
    assert code == 0, output
    assert fleet.state("gatherer") == before
    (archive,) = (fleet.bundle / "packages").iterdir()
    with tarfile.open(archive) as tar:
        names = {name.rpartition("_")[0] for name in tar.getnames() if name.endswith(".deb")}
    assert names >= {"gcc-12_12.2.0-14", "linux-headers-amd64_6.1.170-1", "cuda-nvcc-12-6_12.6.85-1"}
    assert names >= {"libcudnn9-cuda-12_9.10.2.21-1", "libnccl-dev_2.30.7-1+cuda12.9", "dkms_3.0.10-8"}
    assert names >= {"nvidia-container-toolkit_1.19.0-1", "libnvidia-container1_1.19.0-1", "nvidia-open_580.105.08-1"}
    assert not [name for name in names if "590" in name or "9.99" in name or "2.99" in name or "1.20" in name]
    manifest.finish(fleet.bundle)

    before = fleet.state("fleet")
    code, output = fleet.install("--check", "--diff")
    assert code == 0, output
    assert "install nvidia-open 580.105.08-1" in output and "install dkms 3.0.10-8" in output
    assert fleet.state("fleet") == before

    sources = fleet.sh("fleet", "cat /etc/apt/sources.list; ls /etc/apt/sources.list.d /etc/apt/keyrings")
    code, output = fleet.install()
    assert code == 0, output
    assert fleet.sh("fleet", "cat /etc/apt/sources.list; ls /etc/apt/sources.list.d /etc/apt/keyrings") == sources
    there = dict(line.split("\t") for line in fleet.sh("fleet", "dpkg-query -W").splitlines())
    assert there["nvidia-open"] == there["libcuda1"] == there["nvidia-fabricmanager-580"] == "580.105.08-1"
    assert there["nvidia-container-toolkit"] == there["libnvidia-container1"] == "1.19.0-1"
    held = fleet.sh("fleet", "apt-mark showhold").splitlines()
    assert {"nvidia-open", "libcuda1", "nvidia-fabricmanager-580", "libnvidia-container-tools"} <= set(held)

    code, output = fleet.install()
    assert code == 0 and "changed=0 " in output, output
