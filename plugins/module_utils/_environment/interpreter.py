# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interpreter that an environment is made from, and the pip that comes with it."""

from __future__ import annotations

import glob
import json
import os
import shutil
import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import wheel
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.effects import Effects
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import EnvironmentFailure

#: Python itself, whatever is installed: prints one JSON object.
SCRIPT = r"""
from __future__ import print_function
import json, platform, sys, sysconfig
out = {"version": list(sys.version_info[:3]), "executable": sys.executable, "machine": platform.machine(),
       "implementation": platform.python_implementation().lower(), "folders": []}
try:
    import venv
    out["venv"] = True
except ImportError:
    out["venv"] = False
try:
    import ensurepip
    out["folders"].append(ensurepip.__path__[0] + "/_bundled")
except ImportError:
    pass
if sysconfig.get_config_var("WHEEL_PKG_DIR"):
    out["folders"].append(sysconfig.get_config_var("WHEEL_PKG_DIR"))
try:
    import pip
    out["pip"] = pip.__file__.rsplit("/", 1)[0]
except Exception:
    out["pip"] = ""
print(json.dumps(out))
"""
#: The oldest Python that a torch of our data has wheels for.
MINIMUM = (3, 8)


@dataclass(frozen=True)
class Interpreter:
    """A Python: the file that was run, ``minor`` (``3.11``), ``implementation`` (``cpython``), ``machine``
    (``x86_64``), and where wheels of pip or an installed pip lie."""

    executable: str
    version: t.Tuple[int, ...]
    machine: str
    implementation: str
    wheel_folders: t.Tuple[str, ...]
    pip_package: str

    @property
    def minor(self) -> str:
        """As in ``3.11``."""
        return ".".join(map(str, self.version[:2]))


def describe(python: str, effects: Effects) -> Interpreter:
    """Ask the interpreter what it is. Raises EnvironmentFailure where no environment can be made from it."""
    result = effects.run([python, "-I", "-c", SCRIPT], dict(effects.environ))
    try:
        told = json.loads(result.output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        told = None
    if result.rc != 0 or not isinstance(told, dict):
        raise EnvironmentFailure(
            f"pytorch_base_python {python} is no Python that runs here: {result.output.strip() or 'it printed nothing'}"
        )
    version = tuple(told["version"])
    if version < MINIMUM:
        raise EnvironmentFailure(
            f"pytorch_base_python {python} is Python {'.'.join(map(str, version))}, needed is 3.8 or newer; nothing was"
            " changed. Name a newer interpreter of this host in pytorch_base_python"
        )
    if not told["venv"]:
        raise EnvironmentFailure(
            f"{python} has no module venv; install it (Debian and Ubuntu: apt-get install python3-venv), or name"
            " another interpreter in pytorch_base_python"
        )
    return Interpreter(
        executable=told["executable"] or python,
        version=version,
        machine=told["machine"],
        implementation=told["implementation"],
        wheel_folders=tuple(told["folders"]),
        pip_package=told["pip"],
    )


def find_pip(interpreter: Interpreter, given: str, folder: str) -> str:
    """A wheel of pip for this interpreter; empty where none is at hand.

    Looked for in ``folder``, where the wheel at the path ``given`` is put first, in the folders of the interpreter,
    and in its installed pip, which is made into a wheel in ``folder``.
    """
    paths = []
    if given:
        # Kept, since the given file may go before the work that needs it has ended.
        os.makedirs(folder, exist_ok=True)
        shutil.copy(given, folder)
    for place in (*interpreter.wheel_folders, folder):
        paths += glob.glob(os.path.join(glob.escape(place), "pip-*.whl"))
    found = wheel.best_pip(paths, interpreter.version)
    if not found and interpreter.pip_package:
        os.makedirs(folder, exist_ok=True)
        made = wheel.wheel_of_installed(interpreter.pip_package, folder)
        found = wheel.best_pip([made] if made else [], interpreter.version)
    return found
