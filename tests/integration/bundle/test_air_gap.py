# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathered where there is a network, installed and proved in a network namespace that has no route anywhere.

One bundle of this machine serves all tests of the file, in their order. Its wheels come from the wheel store of this
machine where they lie there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: A process there has the loopback alone, and no setting of pip that could lead anywhere.
CUT_OFF = 'ip link set lo up && exec env -u PIP_FIND_LINKS -u PIP_INDEX_URL PIP_CONFIG_FILE=/dev/null "$@"'
pytestmark = [pytest.mark.needs("ip"), pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this root may not make a network namespace: {tried.stderr.strip()}")
    return tmp_path_factory.mktemp("air gap")


def run(place, *command, cut_off=False, **environ):
    prefix = ["unshare", "--net", "sh", "-c", CUT_OFF, "sh"] if cut_off else []
    done = subprocess.run(
        [*prefix, *command],
        cwd=place,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def play(place, playbook, cut_off=False, **variables):
    words = ["ansible-playbook", str(ROOT / f"{playbook}.yml"), "-i", str(ROOT / "inventories/local")]
    extra = ["-e", json.dumps(variables)]
    return run(place, *words, *extra, cut_off=cut_off, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))


def site(place):
    where = {"pytorch_venv": place / "venv", "gate_directory": place / "state", "pytorch_wheel_store": place / "store"}
    variables = {name: str(path) for name, path in where.items()}
    return play(place, "site", cut_off=True, gpufleet_bundle="bundle", gate_install=False, **variables)


def test_gather(place):
    # PyTorch's own index may be out of reach, and pip waits for it with each package: one that has nothing is one more.
    code, output = play(place, "bundle", pytorch_index_url=(place / "index").as_uri())
    assert code == 0, output
    names = sorted(json.loads((place / "bundle" / "bundle.json").read_text())["files"])
    assert "fleet.lock" in names
    assert [name for name in names if name.startswith("wheels/torch-2.13.0+cpu-")]
    assert [name for name in names if name.startswith("run/ansible_core-")]
    assert [name for name in names if name.startswith("run/pip-")]


def test_a_damaged_bundle_is_refused_by_the_name_of_the_file(place):
    (wheel,) = (place / "bundle" / "wheels").glob("sympy-*.whl")
    whole = wheel.read_bytes()
    wheel.unlink()  # The store has a link to the same file.
    wheel.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        code, output = site(place)
    finally:
        wheel.write_bytes(whole)
    assert code != 0, output
    assert f"wheels/{wheel.name} has another SHA-256" in output
    assert not (place / "venv").exists() and not (place / "store").exists() and not (place / "state").exists()


def test_site_installs_and_proves_without_a_network(place):
    code, output = site(place)
    assert code == 0, output
    assert "site: 1 of 1 hosts ready" in output
    assert "bringing torch-2.13.0+cpu" in output
    report = json.loads((place / "reports" / "site" / "latest.json").read_text())
    assert report["ok"] is True


def test_run_makes_its_environment_from_it(place):
    clone = place / "a clone"
    clone.mkdir()
    for name in ("run", "ansible.cfg", "galaxy.yml"):
        shutil.copy2(ROOT / name, clone / name)
    shutil.copytree(ROOT / "requirements", clone / "requirements")
    path = os.pathsep.join(word for word in os.get_exec_path() if Path(word) != ROOT / ".venv/bin")
    command = [str(clone / "run"), "ansible", "--version"]
    code, output = run(place, *command, cut_off=True, PATH=path, GPUFLEET_BUNDLE=str(place))
    assert code == 3 and "GPUFLEET_BUNDLE needs a folder that bundle.yml made" in output
    code, output = run(place, *command, cut_off=True, PATH=path, GPUFLEET_BUNDLE=str(place / "bundle"))
    assert code == 0, output
    assert str(clone / ".venv") in output
