# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a worker is started: with an interpreter of the host, or with the one inside a container image.

A container gets no network and what the engine's own way gives of the GPUs:
CDI for podman, ``--gpus`` for docker, the hook of enroot. The image is never pulled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import typing as t
import uuid

ENGINES = ("podman", "docker", "enroot")
#: NCCL and the ranks share memory; the engines' own 64 MB is not enough.
SHM = "1g"
_REMOVE_S = 30.0
#: The first process of a container ignores an alarm: the worker is its child, by one fork.
INIT = """
import os, sys
child = os.fork()
if child:
    code = os.waitpid(child, 0)[1]
    os._exit(code >> 8 or (128 + code if code else 0))
exec(sys.argv[1])
"""


class Host:
    """An interpreter of the host itself."""

    def __init__(self, python: str) -> None:
        self.python = python
        #: What Findings call the environment.
        self.name = python
        self._scratch: t.Dict[str, str] = {}

    def command(self, key: str, env: t.Mapping[str, str], code: str) -> t.Tuple[t.List[str], t.Dict[str, str], int]:
        """Arguments, environment, and the process that the worker's life is tied to, for a worker named ``key``."""
        given = {**os.environ, **env}
        with contextlib.suppress(OSError):  # what needs one says so itself
            given["TMPDIR"] = self._scratch[key] = tempfile.mkdtemp(prefix="gpufleet-")
        return [self.python, "-I", "-c", code], given, os.getpid()

    def ended(self, key: str) -> None:
        """Leave nothing behind of that worker, which a kill keeps from cleaning up."""
        if key in self._scratch:
            shutil.rmtree(self._scratch.pop(key), ignore_errors=True)


class Image:
    """The interpreter ``python`` inside ``image``; ``gpus``: whether the container is to see those of the host."""

    def __init__(self, engine: str, image: str, python: str, gpus: bool) -> None:
        if engine not in ENGINES:
            raise ValueError(f"the container engine is {engine!r}; {', '.join(ENGINES)} are known")
        self.engine = engine
        self.image = image
        self.python = python
        self.gpus = gpus
        self.name = f"{engine} image {image}"
        self._run = uuid.uuid4().hex[:12]

    def command(self, key: str, env: t.Mapping[str, str], code: str) -> t.Tuple[t.List[str], t.Dict[str, str], int]:
        """As of Host. The container's first process is 1, the worker its child."""
        inside = ["-I", "-c", INIT, code]
        given = dict(os.environ)
        if self.engine == "enroot":
            given.update(env)
            given["NVIDIA_VISIBLE_DEVICES"] = "all" if self.gpus else "void"
            passed = [item for name in env for item in ("--env", name)]
            # enroot makes no namespace of processes: the worker is the child of INIT, whose id nobody knows before.
            return ["enroot", "start", *passed, self.image, self.python, *inside], given, 0
        options = ["--rm", "--interactive", "--name", self._container(key), "--network", "none", "--pull", "never"]
        options += ["--shm-size", SHM, "--entrypoint", self.python]
        if self.gpus:
            options += ["--device", "nvidia.com/gpu=all"] if self.engine == "podman" else ["--gpus", "all"]
        for name, value in env.items():
            options += ["--env", f"{name}={value}"]
        return [self.engine, "run", *options, self.image, *inside], given, 1

    def ended(self, key: str) -> None:
        """Remove the container: ending the engine's client does not end it."""
        if self.engine == "enroot":
            return
        at_once = ["--time", "0"] if self.engine == "podman" else []
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # the worker has an alarm of its own
            subprocess.run(
                [self.engine, "rm", "--force", *at_once, self._container(key)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=_REMOVE_S, check=False,
            )  # fmt: skip

    def _container(self, key: str) -> str:
        return f"gpufleet-proof-{self._run}-{''.join(c for c in key.lower() if c.isalnum() or c == '-')}"
