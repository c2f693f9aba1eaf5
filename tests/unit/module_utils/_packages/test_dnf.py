# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf's own text and files: rpm's list, version locks beside a user's, repositories; and the worker's answers."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import dnf, dnf_files, dnf_worker, system
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import PackageFailure, choose, upstream
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result, Runner

# Of rpm --query --all --queryformat with dnf.FIELDS, an upgrade of nvidia-persistenced stopped in its middle.
ROWS = """gpg-pubkey\t(none)\t(none)\t6b0e7a1c-6b0e7a1c\t100
kernel-core\tx86_64\t(none)\t5.14.0-503.11.1.el9_5\t100
kernel-core\tx86_64\t(none)\t5.14.0-570.12.1.el9_6\t300
nvidia-driver\tx86_64\t3\t580.95.05-1.el9\t200
nvidia-driver-cuda-libs\ti686\t3\t580.95.05-1.el9\t200
nvidia-persistenced\tx86_64\t3\t580.105.08-1.el9\t400
nvidia-persistenced\tx86_64\t3\t580.95.05-1.el9\t200
cuda-toolkit-config-common\tnoarch\t0\t12.8.90-1\t200
"""
USERS = "# Added lock on Mon Dec  1 10:00:00 2025\nbash-0:5.1.8-9.el9.*\n!kernel-0:5.14.0-1.el9.*\n"


class Answers(Runner):
    """A host whose commands answer as told: the first words that fit decide, the last answer stays."""

    def __init__(self, root: Path, answers: t.Mapping[str, t.Sequence[t.Union[Result, t.Mapping[str, t.Any]]]]) -> None:
        super().__init__(str(root))
        self.answers = {words: list(results) for words, results in answers.items()}
        self.asked: t.List[t.Sequence[str]] = []

    def path(self, path: str) -> str:
        return path if path.startswith(self.root) else self.root + path

    def run(self, argv: t.Sequence[str], limit: float = 3.0) -> Result:
        self.asked.append(argv)
        line = " ".join(argv)
        key = next(words for words in self.answers if words in line)
        result = self.answers[key].pop(0) if len(self.answers[key]) > 1 else self.answers[key][0]
        return (
            result
            if isinstance(result, Result)
            else Result(0, f"a scriptlet's\n{dnf_worker.MARK}{json.dumps(result)}\n")
        )


def host(root: Path, **answers: t.Any) -> dnf.Dnf:
    """A dnf of that root, whose worker and rpm answer as told."""
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/dnf").write_text("#!/usr/bin/python3.9 -sP\n")
    told = {**answers, "--whatprovides": [Result(0, "kernel-core\n")], "rpm --query": [Result(0, ROWS)]}
    runner = Answers(root, {**told, "-c": answers.get("worker", [{}])})
    found = dnf.Dnf(runner, 0, 5, stream="nvidia-driver:580-open")
    found.runner, found.arch, found.locks = runner, "x86_64", str(root / "locks")
    return found


def test_rows_of_rpm() -> None:
    rows = dnf.parse_installed(ROWS, "x86_64")
    assert [row.installed_at for row in rows] == sorted(row.installed_at for row in rows)
    assert {(row.name, row.version) for row in rows} == {
        ("kernel-core", "5.14.0-503.11.1.el9_5"),
        ("kernel-core", "5.14.0-570.12.1.el9_6"),
        ("nvidia-driver", "3:580.95.05-1.el9"),
        ("nvidia-driver-cuda-libs:i686", "3:580.95.05-1.el9"),
        ("nvidia-persistenced", "3:580.105.08-1.el9"),
        ("nvidia-persistenced", "3:580.95.05-1.el9"),
        ("cuda-toolkit-config-common", "12.8.90-1"),
    }


@pytest.mark.parametrize(
    ("several", "left"),
    [
        ((), [("kernel-core", "5.14.0-503.11.1.el9_5"), ("nvidia-persistenced", "3:580.95.05-1.el9")]),
        (("kernel-core",), [("nvidia-persistenced", "3:580.95.05-1.el9")]),
        (("kernel-core", "nvidia-persistenced"), []),
    ],
)
def test_what_came_last_stays(several: t.Sequence[str], left: t.Sequence[t.Tuple[str, str]]) -> None:
    found = dnf.twice(dnf.parse_installed(ROWS, "x86_64"), several)
    assert [(old.name, old.version) for old, _new in found] == list(left)


def test_an_upgrade_that_broke_off_is_seen_and_finished(tmp_path: Path) -> None:
    manager = host(tmp_path, **{"rpm --erase": [Result(0)]})
    packages = manager.installed()
    assert packages["kernel-core"].state == "installed"
    assert manager.interrupted(packages) == [
        "nvidia-persistenced 3:580.105.08-1.el9 is installed beside 3:580.95.05-1.el9"
    ]
    manager.repair()
    runner = t.cast(Answers, manager.runner)
    assert runner.asked[-1] == ["rpm", "--erase", "--nodeps", "nvidia-persistenced-580.95.05-1.el9"]


@pytest.mark.parametrize(
    ("plan", "spec"),
    [
        ("nvidia-open", "nvidia-open"),
        ("nvidia-fabricmanager-580.126.20*", "nvidia-fabricmanager=580.126.20*"),
        ("nvidia-fabricmanager-580.*", "nvidia-fabricmanager=580.*"),
        ("libcudnn9-cuda-12-9.10.2.21*", "libcudnn9-cuda-12=9.10.2.21*"),
        ("libnccl-2.26.2-1+cuda12*", "libnccl=2.26.2-1+cuda12*"),
        ("cuda-toolkit-12-8", "cuda-toolkit-12-8"),
        ("nvlsm", "nvlsm"),
    ],
)
def test_how_a_plan_is_asked_for(plan: str, spec: str, tmp_path: Path) -> None:
    assert host(tmp_path).spec(plan) == spec


@pytest.mark.parametrize(
    ("wanted", "versions", "exact"),
    [
        ("nvidia-driver=580.95.05-*", ["3:580.105.08-1.el9", "3:580.95.05-1.el9"], "nvidia-driver=3:580.95.05-1.el9"),
        ("libnccl=2.26.2-1+cuda12*", ["2.27.1-1+cuda12.9", "2.26.2-1+cuda12.8"], "libnccl=2.26.2-1+cuda12.8"),
        ("nvidia-driver=575.*", ["3:580.105.08-1.el9"], ""),
    ],
)
def test_a_plan_knows_of_no_epoch(wanted: str, versions: t.List[str], exact: str) -> None:
    assert choose(wanted, {wanted.split("=")[0]: versions}) == exact


def test_the_driver_of_a_version() -> None:
    assert upstream("3:580.95.05-1.el9") == "580.95.05"


@pytest.mark.parametrize(
    ("line", "locked"),
    [
        ("nvidia-driver-3:580.95.05-1.el9.*", True),
        ("nvidia-driver-3:580.95.05-1.el9.x86_64", True),
        ("nvidia-driver-3:580.95.05-1.el9", True),
        ("nvidia-driver-3:580.105.08-1.el9.*", False),
        # What lets another version in holds nothing: NVIDIA's own advice for EL 10 keeps a branch.
        ("*nvidia*580*", False),
        ("nvidia-driver", False),
        ("nvidia-driver-580.95.05-1.el9.*", False),
        ("# nvidia-driver-3:580.95.05-1.el9.*", False),
        ("!nvidia-driver-3:580.95.05-1.el9.*", False),
        ("", False),
    ],
)
def test_what_holds_a_version(line: str, locked: bool) -> None:
    assert dnf_files.is_locked("nvidia-driver", "3:580.95.05-1.el9", f"# a list\n{line}\n") is locked


def test_a_users_locks_stay_where_they_are() -> None:
    text = dnf_files.with_block(USERS.rstrip("\n"), dnf_files.DRIVER, ["b-0:1-1.*", "a-0:1-1.*", "a-0:1-1.*"])
    assert text.startswith(USERS)
    assert dnf_files.block(text, dnf_files.DRIVER) == ["a-0:1-1.*", "b-0:1-1.*"]
    more = dnf_files.with_block(text, dnf_files.LIBRARIES, ["c-0:1-1.*"]) + "later-0:1-1.*\n"
    moved = dnf_files.with_block(more, dnf_files.DRIVER, ["a-0:2-1.*"])
    assert dnf_files.block(moved, dnf_files.DRIVER) == ["a-0:2-1.*"]
    assert dnf_files.block(moved, dnf_files.LIBRARIES) == ["c-0:1-1.*"]
    gone = dnf_files.with_block(dnf_files.with_block(moved, dnf_files.DRIVER, ()), dnf_files.LIBRARIES, ())
    assert gone == USERS + "later-0:1-1.*\n"


def test_holds_are_set_and_lifted_and_a_users_own_is_not_doubled(tmp_path: Path) -> None:
    manager = host(tmp_path)
    (tmp_path / "locks").write_text("cuda-toolkit-config-common-0:12.8.90-1.*\n")
    manager.hold(["nvidia-driver", "cuda-toolkit-config-common"])
    text = (tmp_path / "locks").read_text()
    assert dnf_files.block(text, dnf_files.LIBRARIES) == ["nvidia-driver-3:580.95.05-1.el9.*"]
    assert manager.installed()["nvidia-driver"].held
    manager.hold(["nvidia-driver", "cuda-toolkit-config-common"], held=False)
    assert (tmp_path / "locks").read_text() == "cuda-toolkit-config-common-0:12.8.90-1.*\n"


def test_a_pin_is_of_what_is_there_and_of_what_could_come(tmp_path: Path) -> None:
    offered = {"nvidia-driver": ["3:580.95.05-1.el9"], "nvidia-xconfig": ["3:580.95.05-1.el9"]}
    manager = host(tmp_path, worker=[{"available": offered, "stream": "", "streams": []}])
    (tmp_path / "etc/dnf/plugins").mkdir(parents=True)
    (tmp_path / "etc/dnf/plugins/versionlock.conf").write_text("[main]\nenabled = 1\n")
    (tmp_path / "locks").write_text(USERS)
    manager.pin("580.95.05", (), (), files := Files(manager.runner))
    text = (tmp_path / "locks").read_text()
    assert text.startswith(USERS)
    assert dnf_files.block(text, dnf_files.DRIVER) == [
        "nvidia-driver-3:580.95.05-1.el9.*",
        "nvidia-driver-cuda-libs-3:580.95.05-1.el9.*",
        "nvidia-persistenced-3:580.95.05-1.el9.*",
        "nvidia-xconfig-3:580.95.05-1.el9.*",
    ]
    # The list is the user's too: it does not go with our files.
    assert files.ours == set()
    # Where all is as it was left, no repository is asked.
    asked = len(t.cast(Answers, manager.runner).asked)
    manager.pin("580.95.05", (), (), Files(manager.runner))
    assert [argv[0] for argv in t.cast(Answers, manager.runner).asked[asked:]] == ["rpm"]
    assert (tmp_path / "locks").read_text() == text
    files.take_back()
    assert (tmp_path / "locks").read_text() == USERS


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (None, "dnf install python3-dnf-plugin-versionlock"),
        ("[main]\nenabled=0\n", "set enabled = 1"),
    ],
)
def test_what_cannot_lock_does_not_pin(settings: t.Optional[str], words: str, tmp_path: Path) -> None:
    manager = host(tmp_path)
    (tmp_path / "etc/dnf/plugins").mkdir(parents=True)
    if settings:
        (tmp_path / "etc/dnf/plugins/versionlock.conf").write_text(settings)
    with pytest.raises(PackageFailure, match=words):
        manager.pin("580.95.05", (), (), Files(manager.runner))


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ([{"error": "nothing provides dkms needed by kmod"}], "^dnf: nothing provides dkms needed by kmod$"),
        ([{"locked": "metadata already locked by 4711"}], "^dnf: metadata already locked by 4711$"),
        ([Result(1, "", "Traceback\nModuleNotFoundError: No module named 'dnf'")], "No module named 'dnf'"),
        ([Result(0, "no answer")], "gave no answer: no answer"),
        ([Result(None, timed_out=True)], "not done within 5 s"),
    ],
)
def test_what_the_worker_could_not_do(worker: t.List[t.Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(PackageFailure, match=words):
        host(tmp_path, worker=worker).update()


def test_a_lock_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    free = {"available": {}, "stream": "575-open", "streams": ["575-open"]}
    manager = host(tmp_path, worker=[{"locked": "by 1"}, {"locked": "by 1"}, free])
    manager.lock_limit = 60
    manager.update()
    assert manager.before == "575-open"


def test_a_prediction_tells_of_streams(tmp_path: Path) -> None:
    answer = {"install": {"nvidia-open": ["", "3:580.95.05-1.el9"]}, "remove": {"nvidia-settings": "3:575.57.08-1.el9"}}
    manager = host(tmp_path, worker=[{**answer, "stream": "575-open", "streams": ["575-open", "580-open"]}])
    assert manager.simulate(["nvidia-open=3:580.95.05-1.el9"]).lines() == [
        "install nvidia-open 3:580.95.05-1.el9",
        "module nvidia-driver: stream 575-open to 580-open",
        "remove nvidia-settings 3:575.57.08-1.el9",
    ]
    # Taken back is what was enabled before, not what was wished for.
    manager.take_back()
    assert manager.stream == "nvidia-driver:575-open"


@pytest.mark.parametrize(
    ("first", "python"),
    [
        ("#!/usr/bin/python3\n", "/usr/bin/python3"),
        ("#!/usr/libexec/platform-python -s\n", "/usr/libexec/platform-python"),
        ("\x7fELF\x02\x01", ""),  # dnf 5
        ("#!/bin/sh\n", ""),
    ],
)
def test_dnfs_own_interpreter(first: str, python: str, tmp_path: Path) -> None:
    manager = host(tmp_path, worker=[{"available": {}, "stream": "", "streams": []}])
    (tmp_path / "usr/bin/dnf").write_text(first)
    if python:
        manager.update()
        assert t.cast(Answers, manager.runner).asked[-1][:3] == [python, "-I", "-c"]
    else:
        with pytest.raises(PackageFailure, match="no program of dnf 4"):
            manager.update()


@pytest.mark.parametrize(
    ("kernel", "devel", "following"),
    [
        (
            "5.14.0-570.12.1.el9_6.x86_64",
            "kernel-devel=5.14.0-570.12.1.el9_6",
            ["kernel-devel-matched=5.14.0-570.12.1.el9_6"],
        ),
        ("5.14.0-570.12.1.el9_6.x86_64+rt", "kernel-rt-devel=5.14.0-570.12.1.el9_6", []),
    ],
)
def test_headers_of_a_kernel(kernel: str, devel: str, following: t.List[str], tmp_path: Path) -> None:
    manager = host(tmp_path)
    assert manager.headers(kernel) == devel
    assert manager.following({}, [kernel], "rocky", "x86_64") == following
    assert manager.following({}, [], "rocky", "x86_64") == ["kernel-devel"]


REPO = "[cuda-rhel9-x86_64]\nname=cuda\nbaseurl=https://vendor.example.invalid/rhel9/x86_64\nenabled={}\n"


@pytest.mark.parametrize(
    ("files", "doubled", "left"),
    [
        ({"base.repo": "[base]\nbaseurl=https://other.example.invalid/\n"}, [], ["base.repo"]),
        (
            {"cuda.repo": REPO.format(1)},
            ["/etc/yum.repos.d/cuda.repo [cuda-rhel9-x86_64]"],
            ["cuda.repo"],
        ),
        ({"cuda.repo": REPO.format(0)}, [], ["cuda.repo"]),
        ({"gpufleet-mirror.repo": REPO.format(1)}, [], ["gpufleet-mirror.repo.disabled"]),
    ],
)
def test_a_repository_is_named_once(
    files: t.Dict[str, str], doubled: t.List[str], left: t.List[str], tmp_path: Path
) -> None:
    manager = dnf.Dnf(Runner(), 0, 5)
    manager.etc = str(tmp_path)
    (tmp_path / "yum.repos.d").mkdir()
    for name, text in files.items():
        (tmp_path / "yum.repos.d" / name).write_text(text)
    asked: t.List[str] = []

    def signed(url: str) -> bool:
        asked.append(url)
        return True

    url = "https://vendor.example.invalid/rhel9/x86_64/"
    for _turn in range(2):
        manager.doubled.clear()
        manager.enter("rhel9", url, "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-rhel9", Files(manager.runner), signed)
    assert manager.doubled == doubled
    assert sorted(path.name for path in (tmp_path / "yum.repos.d").iterdir()) == sorted([*left, "gpufleet-rhel9.repo"])
    text = (tmp_path / "yum.repos.d/gpufleet-rhel9.repo").read_text()
    assert dnf_files.repositories(text) == {"gpufleet-rhel9": ([url], True)}
    assert "gpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-rhel9\n" in text
    # Whether the index is signed is asked once: a server that fails later does not loosen it.
    assert asked == [url + "repodata/repomd.xml.asc"]


@pytest.mark.parametrize(
    ("keys", "erased"),
    [
        (
            "d42d0685 gpg-pubkey-d42d0685-62589a51\n7fa2af80 gpg-pubkey-7fa2af80-576db785\n",
            ["gpg-pubkey-7fa2af80-576db785"],
        ),
        ("d42d0685 gpg-pubkey-d42d0685-62589a51\n", []),
        ("package gpg-pubkey is not installed\n", []),
    ],
)
def test_a_revoked_key_is_trusted_no_more(keys: str, erased: t.List[str], tmp_path: Path) -> None:
    manager = host(tmp_path, **{"gpg-pubkey --queryformat": [Result(0, keys)], "rpm --erase": [Result(0)]})
    manager.etc = str(tmp_path)
    (tmp_path / "yum.repos.d").mkdir()
    url = "https://vendor.example.invalid/rhel9/x86_64/"
    manager.enter("rhel9", url, "RPM-GPG-KEY-gpufleet-rhel9", Files(manager.runner), lambda _url: False)
    runs = [list(argv) for argv in t.cast(Answers, manager.runner).asked if "--erase" in argv]
    assert runs == ([["rpm", "--erase", *erased]] if erased else [])


def test_a_file_that_is_no_repository(tmp_path: Path) -> None:
    manager = dnf.Dnf(Runner(), 0, 5)
    manager.etc = str(tmp_path)
    (tmp_path / "yum.repos.d").mkdir()
    (tmp_path / "yum.repos.d/x.repo").write_text("baseurl=https://vendor.example.invalid/\n")
    with pytest.raises(PackageFailure, match=r"x\.repo cannot be read"):
        manager.enter("rhel9", "https://vendor.example.invalid/", "key", Files(manager.runner), lambda url: True)


@pytest.mark.parametrize(
    ("programs", "version", "words"),
    [
        (["apt-get"], "12", ""),
        (["dnf"], "9.6", ""),
        (["dnf"], "10.1", ""),
        (["dnf"], "8.10", "on Rocky Linux 8.10 the plan and the proof are all there is"),
        ([], "15", "has neither"),
    ],
)
def test_where_packages_are_changed(programs: t.List[str], version: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    for name in programs:
        (tmp_path / "usr/bin" / name).write_text("")
    said = {"id": "rocky", "version": version, "like": ["rhel", "centos"], "name": f"Rocky Linux {version}"}
    found = system.refusal(Runner(str(tmp_path)), t.cast(t.Any, said))
    assert words in found and bool(found) is bool(words)
