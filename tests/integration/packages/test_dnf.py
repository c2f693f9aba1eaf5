# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver and libraries through the real dnf, from a repository that stands in for NVIDIA's, on the host's loopback.

The modules run in the box as Ansible runs them, with plans that the resolver makes for such a host. EL 9 has module
streams and really builds the kernel module; EL 10 has locks alone.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import ansible
import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer
from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images

ROOT = Path(__file__).resolve().parents[3]
PYTHONPATH = "/ansible:/src/collections"
KERNEL = "5.14.0-570.12.1.el9_6.x86_64"
LOCKS = "/etc/dnf/plugins/versionlock.list"
SERVER = """cat > /etc/systemd/system/repository.service <<U
[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory /srv/repo 8081
U
systemctl start repository"""
#: As dnf itself takes its lock.
OTHER_DNF = """import dnf.lock, sys, time
with dnf.lock.build_metadata_lock("/var/cache/dnf", True):
    print("held", flush=True)
    time.sleep(5)
open("/run/released", "w").close()"""


class Host:
    """One box, with the driver that it was given last."""

    def __init__(self, box: str, release: str) -> None:
        self.box, self.release, self.installed = box, release, ""
        self.fingerprint = self.bundle = ""

    def sh(self, script: str) -> str:
        """What a shell in the box prints; a failure raises."""
        return images.podman("exec", self.box, "bash", "-euc", script, timeout=600).stdout.strip()

    def plan(self, branch: str) -> dict[str, t.Any]:
        """The resolver's plan for this host and a wish for a branch."""
        system = {"os_id": "rocky", "os_version": self.release, "arch": "x86_64", "python": "3.12"}
        board = {"gpus": ["NVIDIA A100-SXM4-40GB"], "nvswitch": 6}
        wish = {"driver_policy": branch, "driver_source": "nvidia", "cuda": "12.6"}
        there = {"driver": self.installed, "driver_owner": "package"} if self.installed else {}
        found = answer.answer("latest", {**system, **board, **wish, **there})
        assert found["status"] != "conflict", found
        return found

    def module(self, name: str, check: bool, **options: t.Any) -> dict[str, t.Any]:
        """The answer of a module, run as Ansible runs it."""
        arguments = {"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": check, **options}}
        script = (
            f"from ansible_collections.gpufleet.pytorch.plugins.modules import {name}\n"
            "from ansible.module_utils import basic\n"
            f"basic._ANSIBLE_ARGS = {json.dumps(arguments)!r}.encode()\n"
            "basic._ANSIBLE_PROFILE = 'legacy'\n"
            f"{name}.main()\n"
        )
        environ = ("--env", f"PYTHONPATH={PYTHONPATH}", "--env", f"GPUFLEET_PACKAGES={self.bundle}")
        command = ["exec", *environ, self.box, "python3", "-c", script]
        done = images.podman(*command, check=False, timeout=900)
        try:
            return t.cast("dict[str, t.Any]", json.loads(done.stdout.splitlines()[-1]))
        except (IndexError, ValueError):
            raise AssertionError(done.stdout + done.stderr) from None

    def repository(self, **given: str) -> dict[str, str]:
        return {"url": "http://127.0.0.1:8081", "fingerprint": self.fingerprint, **given}

    def driver(self, branch: str, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        """Bring the driver of a branch."""
        usual = {"plan": self.plan(branch), "mode": "image", "repository": self.repository(), "lock_timeout": 60}
        result = self.module("driver", check, **{**usual, **options})
        if not check and not result.get("failed"):
            self.installed = result["version"]
        return result

    def library(self, part: str, branch: str, check: bool = False) -> dict[str, t.Any]:
        return self.module("planned_packages", check, plan=self.plan(branch), part=part, repository=self.repository())

    def packages(self) -> dict[str, list[str]]:
        """Every package with its versions: an upgrade that broke off leaves two."""
        found: dict[str, list[str]] = {}
        for line in self.sh("rpm -qa --qf '%{NAME} %{VERSION}\\n'").splitlines():
            name, version = line.split()
            found.setdefault(name, []).append(version)
        found.pop("gpg-pubkey", None)
        return found

    def state(self) -> str:
        """What a change may touch: packages, repositories, locks, streams, keys on disk."""
        return self.sh(
            f"rpm -qa | sort; cat {LOCKS} /etc/dnf/modules.d/* 2>/dev/null || :; ls /etc/yum.repos.d /etc/pki/rpm-gpg"
            " /etc/modprobe.d /etc/gpufleet 2>/dev/null || :; cat /etc/yum.repos.d/*; dkms status 2>/dev/null || :"
        )

    def assert_driver(self, version: str) -> None:
        """All of one version, locked, and no second version of anything."""
        found = self.packages()
        parts = {name: versions for name, versions in found.items() if "nvidia" in name}
        assert set(parts) >= {"nvidia-open", "nvidia-driver", "nvidia-persistenced", "nvidia-fabricmanager"}
        assert parts == {name: [version] for name in parts}
        assert {name for name, versions in found.items() if len(versions) > 1} == set()
        locked = self.sh("dnf -q versionlock list").splitlines()
        assert [
            name for name in parts if not any(line.startswith(f"{name}-") and version in line for line in locked)
        ] == []


def start(run: Path, name: str, release: str, plan: t.Callable[[Host], dict[str, t.Any]]) -> Host:
    mounts = [f"{ROOT}:/src:ro", f"{Path(ansible.__file__).parent}:/ansible/ansible:ro"]
    box = boxes.start(run, name, name, *(word for mount in mounts for word in ("--volume", mount)))
    host = Host(box, release)
    made = plan(host)
    exact = []
    for wanted in made["cudnn"]["packages"] + made["nccl"]["packages"]:
        part, _dot, rest = wanted.partition(".")
        package, _dash, major = part.rpartition("-")
        exact.append(f"{package}={major}.{rest}".replace("+cuda12*", "+cuda12.9").replace("*", "-1"))
    exact += ["libcudnn9-cuda-12=9.99.0.1-1", "libnccl=2.99.1-1+cuda12.9"]
    exact += ["cuda-toolkit-12-6=12.6.3-1", "cuda-toolkit-12-8=12.8.1-1"]
    make = f"bash /src/tests/integration/packages/repository.sh {release.split('.', 1)[0]} {' '.join(exact)}"
    host.sh(f"{make} > /tmp/made 2>&1 || {{ cat /tmp/made; exit 1; }}")
    host.sh(f"mkdir -p /etc/pki/rpm-gpg; {SERVER}")  # as on every Enterprise Linux
    host.fingerprint = host.sh("cat /root/fingerprint")
    return host


@pytest.fixture
def run(tmp_path: Path) -> t.Iterator[Path]:
    yield tmp_path
    boxes.remove(tmp_path)


def told(result: t.Mapping[str, t.Any]) -> str:
    assert result.get("failed") is True, result
    return f"{result['findings'][0]['check']}: {result['msg']}"


@pytest.mark.container
def test_enterprise_linux_9(run: Path) -> None:
    host = start(run, "el9", "9.6", lambda host: host.plan("575"))
    host.sh("dnf -q -y install kernel-core bash")
    host.sh(f"printf '# mine\\nbash-0:5.1.8-9.el9.*\\n' > {LOCKS}")
    second = "[cuda]\\nname=cuda\\nbaseurl=http://127.0.0.1:8081\\ngpgcheck=0\\n"
    host.sh(f"printf '{second}' > /etc/yum.repos.d/cuda-rhel9.repo")
    host.sh("dnf -q makecache")
    virgin = host.state()

    # What is predicted changes nothing.
    result = host.driver("575", check=True)
    assert result["changed"] is True and result["version"] == "575.57.08"
    lines = result["diff"]["prepared"].splitlines()
    assert "install nvidia-open 3:575.57.08-1.el9" in lines and f"install kernel-devel {KERNEL[:-7]}" in lines
    assert "module nvidia-driver: stream none to 575-open" in lines
    assert host.state() == virgin

    refused(host)
    assert host.state() == virgin

    # Another dnf has the lock; a user's second entry of the repository stays and is named.
    images.podman("exec", "--detach", host.box, "python3", "-c", OTHER_DNF)
    result = host.driver("575")
    assert result.get("changed") is True, result
    host.sh("test -e /run/released")
    host.assert_driver("575.57.08")
    assert [item["found"] for item in result["findings"] if item["check"] == "repository-doubled"] == [
        "/etc/yum.repos.d/cuda-rhel9.repo [cuda]"
    ]
    assert host.sh(f"modinfo -k {KERNEL} -F version nvidia") == "575.57.08"
    assert "575-open [e]" in host.sh("dnf -q module list --enabled")
    assert host.sh("systemctl is-enabled nvidia-fabricmanager") == "enabled"
    assert host.driver("575")["changed"] is False
    assert host.driver("575", check=True)["changed"] is False

    libraries(host, "575")

    # An upgrade that broke off left two versions of a package; the next change finishes it.
    host.sh("rpm -i --nodeps --force /srv/repo/x86_64/nvidia-persistenced-580.105.08-1.el9.x86_64.rpm")
    assert "nvidia-persistenced 3:580.105.08-1.el9 is installed beside" in told(host.driver("580", check=True))
    assert host.driver("580")["version"] == "580.105.08"
    host.assert_driver("580.105.08")
    assert "580-open [e]" in host.sh("dnf -q module list --enabled")

    # A module that does not build: the compiler's words, and the driver that was there.
    before = host.state()
    text = told(host.driver("590"))
    assert text.startswith("dkms-not-built") and "pci_resize_resource" in text and "590.48.01" in text
    assert host.state() == before
    host.assert_driver("580.105.08")

    assert host.driver("575")["version"] == "575.57.08"
    host.assert_driver("575.57.08")
    assert host.sh("dkms status") == f"nvidia/575.57.08, {KERNEL}, x86_64: installed"

    plan = host.plan("575")
    before = host.state()
    assert host.module("driver", True, plan=plan, state="absent", mode="image")["changed"] is True
    assert host.state() == before
    assert host.module("driver", False, plan=plan, state="absent", mode="image")["changed"] is True
    assert [name for name in host.packages() if "nvidia" in name] == []
    assert host.sh("dnf -q module list --enabled 2>&1 || :").count("[e]") == 0
    locks = host.sh(f"cat {LOCKS}")
    assert locks.startswith("# mine\nbash-0:5.1.8-9.el9.*\n") and "nvidia" not in locks
    assert host.sh("ls /etc/yum.repos.d /etc/modprobe.d").count("gpufleet") == 0
    assert host.module("driver", False, plan=plan, state="absent", mode="image")["changed"] is False


def refused(host: Host) -> None:
    """What cannot be, each with its reason and nothing changed."""
    broken = "/srv/repo/broken"
    host.sh(f"mkdir -p {broken}/repodata; cp /srv/repo/repodata/repomd.xml* {broken}/repodata/")
    key = "http://127.0.0.1:8081/D42D0685.pub"
    kernel = "/lib/modules/5.14.0-1.el9.x86_64"
    stream = host.plan("575")
    stream["driver"]["stream"] = "nvidia-driver:999-open"
    cases: list[tuple[str, str, dict[str, t.Any], list[str]]] = [
        ("", "", {"repository": host.repository(fingerprint="A" * 40)}, ["driver-packages", "Nothing was trusted"]),
        (
            "",
            "",
            {"repository": host.repository(url="http://127.0.0.1:8081/nowhere", key_url=key)},
            ["driver-packages", "404", "http://127.0.0.1:8081/nowhere/repodata/repomd.xml"],
        ),
        (
            "",
            "",
            {"repository": host.repository(url="http://127.0.0.1:8081/broken", key_url=key)},
            ["driver-packages", "gpufleet-rhel9", "404"],
        ),
        ("", "", {"plan": stream}, ["driver-packages", "999-open", "575-open, 580-open, 590-open"]),
        (
            "mv /srv/base/x86_64/dkms-* /root; createrepo_c -q /srv/base",
            "mv /root/dkms-* /srv/base/x86_64; createrepo_c -q /srv/base",
            {},
            ["driver-packages", "nothing provides dkms needed by kmod-nvidia-open-dkms"],
        ),
        (
            f"mkdir {kernel}; touch {kernel}/vmlinuz; mv /lib/modules/{KERNEL} /root",
            f"rm -r {kernel}; mv /root/{KERNEL} /lib/modules",
            {},
            ["headers-unavailable", "kernel-devel=5.14.0-1.el9", "nothing was changed"],
        ),
        (
            "sed -i 's/enabled = 1/enabled = 0/' /etc/dnf/plugins/versionlock.conf",
            "sed -i 's/enabled = 0/enabled = 1/' /etc/dnf/plugins/versionlock.conf",
            {},
            ["driver-packages", "versionlock is switched off"],
        ),
        (
            "sed -i 's/9.6/8.10/' /etc/os-release",
            "sed -i 's/8.10/9.6/' /etc/os-release",
            {},
            ["driver-packages", "Rocky Linux 8.10", "driver_policy: external"],
        ),
    ]
    for before, after, options, words in cases:
        if before:
            host.sh(before)
        text = told(host.driver("575", **options))
        if after:
            host.sh(after)
        assert [word for word in words if word not in text] == [], text
    host.sh(f"rm -r {broken}; dnf -q --disablerepo=cuda makecache")


def libraries(host: Host, branch: str) -> None:
    """What those compile against who do: the plan's versions, not the newest, locked."""
    before = host.state()
    assert host.library("cudnn", branch, check=True)["changed"] is True
    assert host.state() == before
    for part in ("cudnn", "nccl"):
        assert host.library(part, branch)["changed"] is True
    assert host.library("nccl", branch)["changed"] is False
    found = host.packages()
    assert found["libcudnn9-cuda-12"] == found["libcudnn9-devel-cuda-12"] != ["9.99.0.1"]
    assert found["libnccl"] == found["libnccl-devel"] != ["2.99.1"]
    host.sh("dnf -q -y upgrade")
    assert host.packages() == found


def from_a_bundle(host: Host, branch: str) -> None:
    """Gathered from the repositories without a trace, and installed where they answer no more."""
    before = host.state()
    parts = [{"part": "nccl"}]
    place = {"directory": "/var/tmp/bundle", "repository": host.repository()}
    made = host.module("bundle_packages", False, plan=host.plan(branch), parts=parts, **place)
    assert made.get("changed") is True, made
    assert host.state() == before
    host.bundle = f"/var/lib/gpufleet/packages/{made['name'].rpartition('-')[2][:-4]}"
    host.sh(
        f"mkdir -p {host.bundle}; tar -C {host.bundle} -xf {made['archive']}; test -e {host.bundle}/whole;"
        " rm -r /var/tmp/bundle /var/cache/dnf; systemctl stop repository; mv /srv/base /srv/repo /root"
    )
    sources = host.sh("cat /etc/yum.repos.d/*; ls /etc/yum.repos.d /etc/pki/rpm-gpg")
    assert host.driver(branch, check=True)["changed"] is True
    result = host.driver(branch)
    assert result.get("version") == "580.105.08", result
    host.assert_driver("580.105.08")
    assert host.driver(branch)["changed"] is False
    assert host.library("nccl", branch)["packages"]["libnccl"] != "2.99.1-1+cuda12.9"
    assert host.sh("cat /etc/yum.repos.d/*; ls /etc/yum.repos.d /etc/pki/rpm-gpg") == sources


@pytest.mark.container
def test_enterprise_linux_10(run: Path) -> None:
    host = start(run, "el10", "10.1", lambda host: host.plan("580"))
    assert "not done within 0 s" in told(host.driver("580", timeout=0))
    result = host.driver("580")
    assert result.get("version") == "580.105.08", result
    host.assert_driver("580.105.08")
    assert host.library("cuda", "580")["packages"] == {"cuda-toolkit-12-6": "12.6.3-1"}

    # Nobody's upgrade moves it, and what somebody loosened is locked again.
    host.sh("dnf -q -y upgrade")
    host.assert_driver("580.105.08")
    host.sh("dnf -q versionlock clear")
    assert host.driver("580", check=True)["changed"] is True
    assert host.driver("580")["changed"] is True
    host.assert_driver("580.105.08")

    plan = host.plan("580")
    assert host.module("driver", False, plan=plan, state="absent", mode="image")["changed"] is True
    assert [name for name in host.packages() if "nvidia" in name] == []
    assert "nvidia" not in host.sh(f"cat {LOCKS}")
    host.installed = ""
    from_a_bundle(host, "580")
