# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Python environment holds of torch, without importing torch: in a tenth of a second, even where broken."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Runs in the environment's own interpreter and prints one JSON object: python_version; torch_version (with its
#: local label, from torch/version.py: the metadata of a wheel from the common index has none); torch_cuda; packages,
#: the versions of torch, NumPy and all that they require; files, how many of theirs were looked at; missing, those
#: that are gone or of another size than installed. A byte changed in place, at the same size, is not seen: that
#: would take reading gigabytes, which the proof's import does not do either.
SCRIPT = r"""
import csv, json, os, re, sys
out = {"python_version": "%d.%d.%d" % sys.version_info[:3], "torch_version": None, "torch_cuda": None}
out.update(packages={}, files=0, missing=[])
def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()
def read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except OSError:
        return ""
# By hand: importlib.metadata takes twice as long for all of this. Its order: the first folder on the path that has it.
dists = {}
for place in sys.path:
    try:
        names = os.listdir(place)
    except OSError:
        continue
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            dists.setdefault(canonical(name.rpartition(".")[0].partition("-")[0]), (place, os.path.join(place, name)))
def headers(info):
    text = read(info, "METADATA") or read(info, "PKG-INFO") or read(info)
    return [line.partition(": ")[::2] for line in text.partition("\n\n")[0].splitlines()]
wanted, seen = ["torch", "numpy"], set()
while wanted:
    name = wanted.pop()
    if name in seen:
        continue
    seen.add(name)
    if name not in dists:
        continue
    place, info = dists[name]
    told = headers(info)
    version = next((value for key, value in told if key == "Version"), None)
    if version is None:
        continue
    out["packages"][name] = version
    needs = [value for key, value in told if key == "Requires-Dist"]
    needs += read(info, "requires.txt").partition("[")[0].split("\n")
    for line in needs:
        match = re.match(r"[A-Za-z0-9._-]+", line)
        if match and "extra ==" not in line:
            wanted.append(canonical(match.group(0)))
    # Relative to the folder: a path is walked from its beginning at each of sixteen thousand looks.
    folder = os.open(place, os.O_RDONLY)
    for row in csv.reader(read(info, "RECORD").splitlines()):
        if len(row) < 3 or row[0].endswith((".pyc", ".pth")) or not row[2]:
            continue
        out["files"] += 1
        try:
            size = os.stat(row[0], dir_fd=folder).st_size
        except OSError:
            size = -1
        if size != int(row[2]):
            out["missing"].append(row[0])
    os.close(folder)
if "torch" in out["packages"]:
    out["torch_version"] = out["packages"]["torch"]
    text = read(dists["torch"][0], "torch/version.py")
    for key, target in (("__version__", "torch_version"), ("cuda", "torch_cuda")):
        match = re.search(r"^%s\b[^=\n]*= *['\"]([^'\"]+)['\"]" % key, text, re.M)
        if match:
            out[target] = match.group(1)
else:
    out["error"] = "torch is not installed in it"
json.dump(out, sys.stdout)
"""


def environment(runner: Runner, python: str, limit: float = 30.0) -> t.Dict[str, t.Any]:
    """The environment of the interpreter ``python``, told within ``limit`` seconds.

    Returns python, and what SCRIPT prints; ``error`` where it could not be told, with ``denied`` where root could.
    """
    place = runner.path(python)
    try:
        os.stat(place)
    except PermissionError:
        return {"python": python, "error": f"{python} cannot be reached as this user", "denied": True}
    except OSError:
        pass  # said below
    if os.path.isdir(place):
        return {"python": python, "error": f"{python} is a folder; an interpreter is needed"}
    if not os.path.exists(place):
        return {"python": python, "error": f"{python} is not there"}
    if not os.access(place, os.X_OK):
        return {"python": python, "error": f"{python} is not executable"}
    result = runner.run([python, "-I", "-c", SCRIPT], limit)
    if not result.problem:
        try:
            told = json.loads(result.out)
            return {"python": python, **told}
        except (ValueError, TypeError):
            return {"python": python, "error": f"{python} is no Python: it printed {result.out[:80]!r}"}
    return {"python": python, "error": f"{python} cannot be run: {result.problem}"}
