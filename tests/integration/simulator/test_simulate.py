# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""simulate.yml: hosts that can be judged by the playbooks as they are, and what is refused before one is made."""

from __future__ import annotations

import json
import os
import re
import subprocess
import typing as t
from pathlib import Path

import fleet
import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes

ROOT = Path(__file__).resolve().parents[3]
ASKED = {"state": "present", "hosts": "2", "profile": "t4", "gpus": "", "set": {}, "image": "debian12"}
FAULT = {"gpu2": ["gpu.1.ecc_errors.volatile.dram_uncorrectable=4"]}

#: What is asked otherwise, and a piece of the answer.
REFUSED = [
    ({"hosts": "0"}, "simulate_hosts is 0; it can be 1 to 64"),
    ({"hosts": "four"}, "simulate_hosts is four"),
    ({"gpus": 65}, "simulate_gpus is 65"),
    ({"state": "gone"}, "simulate_state is gone; it can be present or absent"),
    ({"image": "ubuntu"}, "simulate_image is ubuntu; it can be debian12, debian12-slurm, debian13"),
    ({"profile": "h100"}, "simulate_profile h100: there is none of this name; there are a100-sxm"),
    ({"set": {"gpu3": []}}, "simulate_set names gpu3; the hosts are gpu1 to gpu2"),
    ({"set": {"gpu1": "gpu.0=@lost"}}, "simulate_set takes a list for each host"),
    ({"set": {"gpu1": ["gpu.0.no_such=1"]}}, "simulate_set: gpu1: gpu.0.no_such=1: no_such: no such element"),
    ({"set": {"gpu1": ["gpu.1=@lost"]}}, "simulate_set: gpu1: gpu.1=@lost"),
]


@pytest.mark.parametrize(("other", "said"), REFUSED, ids=[said for _other, said in REFUSED])
def test_what_cannot_be_made_is_refused_at_once(other: dict[str, t.Any], said: str) -> None:
    with pytest.raises(fleet.FleetError, match=re.escape(said)):
        fleet.read({**ASKED, **other})


def host(profile: str = "t4", faults: tuple[str, ...] = (), simulates: bool = True) -> fleet.Host:
    return fleet.Host(("debian12", profile, ""), faults, simulates)


STEPS = [
    (None, host(), "created"),
    (host(), host(), "unchanged"),
    (host(), host(faults=("gpu.0=@lost",)), "restarted"),
    (host(simulates=False), host(), "restarted"),
    (host("l4"), host(), "replaced"),
    (fleet.Host((), ()), host(), "replaced"),
    (host(), None, "removed"),
]


@pytest.mark.parametrize(("found", "wanted", "step"), STEPS, ids=[str(number) for number in range(len(STEPS))])
def test_a_host_is_kept_where_it_is_as_asked(found: t.Any, wanted: t.Any, step: str) -> None:
    assert fleet.steps({"gpu1": wanted} if wanted else {}, {"gpu1": found} if found else {}) == {"gpu1": step}


def play(folder: Path, playbook: str, *options: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        ["ansible-playbook", str(ROOT / playbook), *options], cwd=folder, env=settings, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.container
@pytest.mark.needs("gcc")
def test_two_hosts_of_which_one_is_ill(tmp_path: Path) -> None:
    directory = tmp_path / "inventory"
    asked = {"simulate_directory": str(directory), "simulate_profile": "h100-sxm", "simulate_gpus": 2}
    simulate = ("simulate.yml", "-e", json.dumps({**asked, "simulate_set": FAULT}))
    try:
        done = play(tmp_path, *simulate)
        assert done.returncode == 0, done.stdout + done.stderr
        done = play(tmp_path, *simulate)
        assert re.findall(r"changed=(\d+)", done.stdout) == ["0", "0", "0"], done.stdout + done.stderr

        done = play(tmp_path, "drift.yml", "-i", str(directory))
        assert done.returncode != 0
        hosts = json.loads((tmp_path / "reports/drift/latest.json").read_text())["hosts"]
        failed = {
            name: {one["check"] for one in told["findings"] if one["state"] == "fail"} for name, told in hosts.items()
        }
        assert failed == {"gpu1": set(), "gpu2": {"ecc-uncorrected"}}, done.stdout

        done = play(tmp_path, "simulate.yml", "-e", json.dumps({**asked, "simulate_state": "absent"}))
        assert (done.returncode, list(directory.iterdir()), fleet.find(directory)) == (0, [], {}), done.stdout
    finally:
        boxes.remove(directory / ".boxes")
