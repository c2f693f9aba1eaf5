# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof inside a container image, and of a host that is a container; what is left of one whose worker hangs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import prove, wire
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.container import Host, Image
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import Supervisor, Worker, sources
from ansible_collections.gpufleet.pytorch.tests.containers import images

ROOT = Path(__file__).resolve().parents[3]
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


#: On a host that is a container, with its own Python: a proof, and one of which worker 2 is killed.
TWICE = """
import json, sys
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import prove
settings = prove.Settings(sys.argv[1], plan={"accelerator": "cpu"}, owned=False, cpu_workers=4)
places = prove._places
prove._places = lambda *told: [
    {**place, "job": {**place["job"], "kills_itself": place["key"] == "2"}} for place in places(*told)
]
for source in (None, [*prove.worker_source()[:-1], (prove.worker_source()[-1][0], sys.argv[2])]):
    proof, found = prove.prove(settings, source)
    print(json.dumps([fold(found), proof, [item.to_dict() for item in found]]))
"""
KILLED = """
_run = serve
def serve(work, job):
    def killed(torch, job, wire):
        if job["kills_itself"]:
            import os, signal
            torch.mm = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
        work(torch, job, wire)
    _run(killed, job)
"""


@pytest.mark.container
def test_four_workers_inside_a_container(torch_python):
    """They multiply exactly and for time, and reduce among them, beside a home that is read-only; and of a killed one
    the name."""
    images.ensure("debian12")
    fault = prove.worker_source()[-1][1] + KILLED
    # The environment and its base Python; one below /usr is the image's own.
    base = subprocess.run(
        [torch_python, "-I", "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    shared = [ROOT, Path(torch_python).parents[1], *([base] if base != "/usr" else [])]
    mounts = [f"--volume={path}:{path}:ro" for path in shared]
    done = images.podman(
        "run", "--rm", "--read-only", "--network=none", *mounts, f"--env=PYTHONPATH={ROOT / 'collections'}",
        "localhost/gpufleet/debian12", "python3", "-c", TWICE, torch_python, fault, timeout=300,
    )  # fmt: skip
    (state, proof, found), (worse, _proof, said) = map(json.loads, done.stdout.splitlines())
    assert state == "ready", found
    assert [device["ended"] for device in proof["devices"]] == ["done"] * 4
    for device in proof["devices"]:
        assert {row["dtype"] for row in device["exact"]} == {"float32", "float16", "bfloat16", "int8"}
        assert {row["state"] for row in device["exact"]} == {"ok"}
        assert device["rates"] and all(row["tflops"] > 0 for row in device["rates"])
    sums = proof["together"]["allreduce"]
    assert [row["bytes"] for row in sums] == [1 << 10, 1 << 16, 1 << 22, 1 << 24]
    assert all(row["right"] and row["ranks"] == 4 and row["busbw_gbs"] > 0 for row in sums)
    assert worse == "not_ready"
    runs = {item["subject"]["key"]: (item["state"], item["evidence"].get("fault")) for item in said
            if item["check"] == "matmul-run"}  # fmt: skip
    assert runs == {"cpu0": ("ok", None), "cpu1": ("ok", None), "cpu2": ("fail", "killed"), "cpu3": ("ok", None)}


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
