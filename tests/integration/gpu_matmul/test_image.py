# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof inside a container image, for real with podman; and what is left of a container whose worker hangs."""

from __future__ import annotations

import json
import subprocess

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import prove, wire
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.container import Host, Image
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import Supervisor, Worker, sources
from ansible_collections.gpufleet.pytorch.tests.containers import images

IMAGE = "localhost/gpufleet/debian13-torch"
PYTHON = "/opt/research/bin/python"


@pytest.fixture
def image(monkeypatch):
    images.ensure("debian13-torch")
    monkeypatch.setenv("CONTAINERS_CONF", images.podman_environment()["CONTAINERS_CONF"])
    return IMAGE


def left():
    return images.podman("ps", "--all", "--quiet", "--filter", "name=gpufleet-proof-").stdout.split()


@pytest.mark.container
def test_what_users_run_is_proved(image):
    settings = prove.Settings(PYTHON, owned=False, device="cpu", cpu_workers=1, dtypes=["float32"], image=image)
    proof, found = prove.prove(settings)
    assert fold(found) == "ready", found
    assert proof["environment"]["torch_version"].startswith("2.6.0")
    assert proof["environment"]["image"] == image
    assert proof["devices"][0]["exact"]
    assert not left()


@pytest.mark.container
@pytest.mark.parametrize(
    ("image_name", "python", "says"),
    [
        ("localhost/gpufleet/no-such-image", PYTHON, "no-such-image"),
        (IMAGE, "/no/such/python", "/no/such/python"),
    ],
)
def test_what_cannot_be_started_is_named(image, image_name, python, says):
    _proof, found = prove.prove(prove.Settings(python, owned=False, device="cpu", image=image_name))
    assert fold(found) == "not_ready"
    assert says in found[0].found


HANG = """
import time
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire, tie_life
def main(job):
    tie_life(job["parent"], job["alarm_s"])
    Wire().emit("imported")
    time.sleep(1000)
"""


@pytest.mark.container
def test_a_worker_that_hangs_leaves_no_container(image):
    source = [*sources([wire.__name__]), ("hang", HANG)]
    (outcome,) = Supervisor(Image("podman", image, PYTHON, gpus=False), source, before=1).run([Worker("0", {})])
    assert outcome.ended == "hang"
    assert outcome.named("imported")
    assert not left()


@pytest.mark.parametrize(
    ("engine", "gpus", "has", "lacks"),
    [
        ("podman", True, "--device nvidia.com/gpu=all", "--gpus"),
        ("podman", False, "--network none --pull never", "nvidia.com"),
        ("docker", True, "--gpus all", "nvidia.com"),
        ("enroot", True, "enroot start --env CUDA_VISIBLE_DEVICES", "--network"),
    ],
)
def test_the_engines_own_way(engine, gpus, has, lacks):
    command, env, parent = Image(engine, "an/image", "python3", gpus).command(
        "GPU-1", {"CUDA_VISIBLE_DEVICES": "0"}, "code"
    )
    assert has in " ".join(command)
    assert lacks not in " ".join(command)
    assert command[-4:-2] == ["-I", "-c"] and command[-1] == "code"
    assert parent == (0 if engine == "enroot" else 1)
    assert env.get("NVIDIA_VISIBLE_DEVICES", "all") == "all"


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="podman, docker, enroot"):
        Image("lxc", "image", "python3", gpus=False)


def test_the_first_process_passes_the_workers_end_on():
    """Of a container, where it is 1; here it is any process."""
    init = Image("podman", "i", "python3", gpus=False).command("0", {}, "import sys; sys.exit(7)")[0][-4:]
    assert subprocess.run([Host("python3").python, *init], check=False).returncode == 7
    died = [*init[:-1], "import os; os.kill(os.getpid(), 9)"]
    assert subprocess.run(["python3", *died], check=False).returncode == 128 + 9
    told = [*init[:-1], "import json; print(json.dumps(input()))"]
    assert (
        json.loads(subprocess.run(["python3", *told], input="x\n", capture_output=True, text=True, check=True).stdout)
        == "x"
    )
