#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_matmul
short_description: Proves that each GPU multiplies right and as fast as its siblings
version_added: "0.1.0"
description:
  - Starts one worker process a GPU with the interpreter of a PyTorch environment. On a machine without a GPU,
    it starts some CPU processes with small sizes, and says so.
  - Multiplies matrices of integers whose product is known to the last bit, whatever the library or the GPU.
  - Then multiplies random matrices for time, and compares the GPUs of one kind with each other.
  - A bad result is a finding, not a failure of the task. The task fails only where it was called wrongly.
  - Each worker has a time limit and ends with the module, whatever stops it. A hang, a crash or a broken CUDA context
    is the finding of that GPU alone.
options:
  python:
    description:
      - Absolute path of the interpreter of an environment of the user's. It is proved as it is, also with another
        release of torch than planned, and never changed.
      - Empty for the environment in O(venv).
    type: path
    default: ""
  venv:
    description:
      - Folder of the environment that M(gpufleet.pytorch.torch_environment) made. Another build than planned is a
        failure.
      - Empty for C(/opt/gpufleet/venv) as root, and C($XDG_DATA_HOME/gpufleet/venv) (C(~/.local/share)) otherwise.
    type: path
    default: ""
  image:
    description:
      - Prove inside a container of this image, which users run, rather than in an environment of the host. The image
        must be on the host; it is never pulled, and gets no network.
      - O(python) is then the interpreter in the image, C(python3) where it is empty. The torch in there is proved as it
        is.
    type: str
    default: ""
  engine:
    description: What runs the container, with its own way to the GPUs (CDI, C(--gpus), the hook of enroot).
    type: str
    choices: [podman, docker, enroot]
    default: podman
  at_once:
    description:
      - On the controller, how many hosts of one O(group) may be proved at once, over all playbooks of this user. The
        others wait. 0 for no limit.
      - 200 hosts of eight GPUs are a step of a megawatt.
    type: int
    default: 0
  group:
    description: What hosts share that the load may not exceed, such as a rack or a power feed.
    type: str
    default: ""
  unless:
    description:
      - Findings of the host. Where one of O(unless_checks) among them warns or has failed, no load is put on the host,
        and its proof is unknown.
    type: list
    elements: dict
    default: []
  unless_checks:
    description: The checks of which a warning or failure forbids the load.
    type: list
    elements: str
    default: []
  plan:
    description:
      - The plan of the host, as the lookup P(gpufleet.pytorch.compat#lookup) returns it.
      - With an accelerator C(cuda) in it, the proof fails where torch sees no GPU, and says why.
        It never takes the CPU instead.
    type: dict
  level:
    description:
      - How much is proved. V(quick) takes less than a minute after the import of torch, V(standard) ten minutes,
        V(burnin) hours.
    type: str
    choices: [quick, standard, burnin]
    default: quick
  device:
    description: With V(auto), GPUs where the plan or the machine has any, and CPU processes otherwise.
    type: str
    choices: [auto, cuda, cpu]
    default: auto
  cpu_workers:
    description: Number of CPU processes, where the proof runs on the CPU.
    type: int
    default: 2
  timeout:
    description:
      - Seconds that a worker may take after the import of torch.
      - 0 takes 60 for O(level=quick), 600 for O(level=standard) and four hours for O(level=burnin). At most 30 days.
    type: float
    default: 0
  import_timeout:
    description: Seconds that the import of torch may take. It is long on a network file system.
    type: float
    default: 300
  dtypes:
    description: Prove only these types. Empty, all that fit the device.
    type: list
    elements: str
    choices: [float32, tf32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8]
    default: []
  share:
    description:
      - Whether to prove a GPU on which somebody computes. When V(false), nothing is run on such a GPU, and its state is
        unknown.
    type: bool
    default: false
  memory:
    description:
      - Percent of the free memory of each GPU that is written, read back and compared. 0 for none.
      - The proof itself needs about 2 GiB a GPU.
    type: int
    default: 0
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details: Says what would run, and runs nothing.
  diff_mode:
    support: none
    details: Nothing is changed.
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Prove the environment that the collection made
  gpufleet.pytorch.gpu_matmul:
    plan: "{{ gpufleet_plan }}"
  register: proved

- name: Prove what users run, on two hosts of a rack at a time
  gpufleet.pytorch.gpu_matmul:
    image: registry.example.com/team/train:latest
    at_once: 2
    group: "{{ rack }}"

- name: Prove a user's own environment on four CPU processes
  gpufleet.pytorch.gpu_matmul:
    python: /home/me/my env/bin/python
    device: cpu
    cpu_workers: 4
"""

RETURN = r"""
proof:
  description: What was proved, and what was measured.
  type: dict
  returned: always
  contains:
    level:
      description: The level that was asked for.
      type: str
      returned: always
    environment:
      description: Interpreter, versions, architectures, and which file was loaded for each library.
      type: dict
      returned: always
    devices:
      description: Each device with its products (C(exact)) and its TFLOPS (C(rates)).
      type: list
      elements: dict
      returned: always
findings:
  description: What was found, a finding a check and subject.
  type: list
  elements: dict
  returned: always
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import paths
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    default_venv,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import now, stamp
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.container import ENGINES
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.jobs import LIMITS
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.prove import (
    Settings,
    load_forbidden,
    predicted,
    prove,
)

#: Options that are numbers: unit, the least and the greatest that make sense.
RANGES = {
    "timeout": ("seconds", 0, 30 * 24 * 3600),
    "import_timeout": ("seconds", 1, 30 * 24 * 3600),
    "cpu_workers": ("processes", 1, 1024),
    "memory": ("percent", 0, 95),
    "at_once": ("hosts", 0, 1000000),
}


def _refuse(params: t.Mapping[str, t.Any]) -> None:
    """Raise EnvironmentFailure for values with which nothing can be proved."""
    paths.refuse("pytorch_python", params["python"], command=bool(params["image"]))
    paths.refuse("pytorch_venv", params["venv"])
    image = params["image"]
    if image and (image.startswith("-") or not image.isprintable()):  # the engine would take it for an option
        raise EnvironmentFailure(f"pytorch_image needs the name of an image, found {image!r}")
    plan = params["plan"] or {}
    for name, good in (
        ("accelerator", plan.get("accelerator") in (None, "", "cuda", "cpu")),
        ("torch", isinstance(plan.get("torch") or {}, dict)),
    ):
        if not good:
            raise EnvironmentFailure(
                f"the plan has {name} {plan[name]!r}, which the lookup gpufleet.pytorch.compat never gives; plan anew"
            )
    for name, (unit, least, most) in RANGES.items():
        if not least <= params[name] <= most:  # nor is "not a number" within it
            raise EnvironmentFailure(
                f"verify_{name} needs a number of {unit} from {least} to {most}, found {params[name]}"
            )


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "default": ""},
            "venv": {"type": "path", "default": ""},
            "image": {"type": "str", "default": ""},
            "engine": {"type": "str", "choices": list(ENGINES), "default": "podman"},
            "at_once": {"type": "int", "default": 0},
            "group": {"type": "str", "default": ""},
            "unless": {"type": "list", "elements": "dict", "default": []},
            "unless_checks": {"type": "list", "elements": "str", "default": []},
            "plan": {"type": "dict"},
            "level": {"type": "str", "choices": ["quick", "standard", "burnin"], "default": "quick"},
            "device": {"type": "str", "choices": ["auto", "cuda", "cpu"], "default": "auto"},
            "cpu_workers": {"type": "int", "default": 2},
            "timeout": {"type": "float", "default": 0},
            "import_timeout": {"type": "float", "default": 300},
            "dtypes": {
                "type": "list",
                "elements": "str",
                "choices": ["float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"],
                "default": [],
            },
            "share": {"type": "bool", "default": False},
            "memory": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    try:
        _refuse(module.params)
    except EnvironmentFailure as error:
        module.fail_json(msg=str(error))
    params = dict(module.params)
    venv = params.pop("venv") or default_venv(os.geteuid(), os.environ)
    params["memory_percent"] = params.pop("memory")
    for name in ("at_once", "group"):  # the action's, on the controller
        params.pop(name)
    forbidden = load_forbidden(params.pop("unless"), params.pop("unless_checks"))
    params["owned"] = not params["python"] and not params["image"]
    params["python"] = params["python"] or ("python3" if params["image"] else os.path.join(venv, "bin", "python"))
    params["timeout"] = params["timeout"] or LIMITS[params["level"]]
    settings = Settings(**params)
    if settings.device != "auto" and settings.accelerator not in (None, settings.device):
        module.fail_json(
            msg=f"verify_device is {settings.device}, but the plan says accelerator {settings.accelerator}:"
            " leave it at auto, or plan anew"
        )
    if module.check_mode:
        proof, found = (
            {"level": settings.level, "environment": {"python": settings.python}, "devices": []},
            [predicted(settings)],
        )
    elif forbidden:
        proof, found = {"level": settings.level, "environment": {}, "devices": []}, [forbidden]
    else:
        proof, found = prove(settings)
    module.exit_json(changed=False, proof=proof, findings=[finding.to_dict() for finding in stamp(found, now())])


if __name__ == "__main__":
    main()
