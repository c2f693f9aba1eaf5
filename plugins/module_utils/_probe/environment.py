# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Python environment holds of torch, without importing torch: in a tenth of a second, even where broken."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Runs in the environment's own interpreter. Prints one JSON object: python_version, torch_version (with its
#: local label, from torch/version.py: the metadata of a wheel from the common index has none), torch_cuda, and
#: the shared objects of torch that are missing or of another size than installed.
SCRIPT = r"""
import json, re, sys
from importlib import metadata
out = {"python_version": "%d.%d.%d" % sys.version_info[:3], "torch_version": None, "torch_cuda": None, "missing": []}
try:
    dist = metadata.distribution("torch")
except metadata.PackageNotFoundError:
    out["error"] = "torch is not installed in it"
else:
    out["torch_version"] = dist.version
    for item in dist.files or []:
        name = item.name
        if name == "version.py" and str(item).count("/") == 1:
            try:
                text = item.locate().read_text()
            except OSError:
                out["missing"].append(str(item))
                continue
            for key, target in (("__version__", "torch_version"), ("cuda", "torch_cuda")):
                match = re.search(r"^%s\b[^=\n]*= *['\"]([^'\"]+)['\"]" % key, text, re.M)
                if match:
                    out[target] = match.group(1)
        elif ".so" in name:
            try:
                size = item.locate().stat().st_size
            except OSError:
                size = None
            if size is None or (item.size is not None and size != item.size):
                out["missing"].append(str(item))
json.dump(out, sys.stdout)
"""


def environment(runner: Runner, python: str, limit: float = 30.0) -> t.Dict[str, t.Any]:
    """The environment of the interpreter ``python``, told within ``limit`` seconds.

    Returns python, python_version, torch_version, torch_cuda, missing (paths
    inside the environment), and ``error`` where it could not be told.
    """
    result = runner.run([python, "-I", "-c", SCRIPT], limit)
    if not result.problem:
        try:
            return {"python": python, **json.loads(result.out)}
        except ValueError:
            return {"python": python, "error": f"{python} printed no JSON: {result.out[:80]!r}"}
    return {"python": python, "error": f"{python} cannot be run: {result.problem}"}
