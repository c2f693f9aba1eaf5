# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would put another copy of the wheel's libraries on a program's path: lines of files that everybody's login,
a service, a conda environment or the loader itself reads, and packages that bring one library twice. By reading alone.

The loader looks at LD_PRELOAD and /etc/ld.so.preload, then at LD_LIBRARY_PATH, then at the RUNPATH that the wheel's
libraries carry, and last at ld.so.cache, which ldconfig makes of ld.so.conf (ld.so(8)).
"""

from __future__ import annotations

import fnmatch
import os
import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.patterns import lazy
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Libraries that a wheel of torch, or one that it requires, brings.
OF_THE_WHEEL = lazy(
    r"^lib(?:torch|c10|cudart|cublas|cudnn|cufft|cufile|curand|cusolver|cusparse|cupti|nccl|nvJitLink|nvrtc|nvToolsExt"
    r"|nvshmem|nvblas|nvfatbin|nvvm)[\w+-]*\.so"
)
VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
#: What every login reads, in its order; PAM gives those of /etc/environment to some services too.
LOGIN = ("/etc/environment", "/etc/security/pam_env.conf", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc",
         "/etc/csh.cshrc", "/etc/csh.login", "/etc/zsh/zshenv", "/etc/zshenv")  # fmt: skip
LOGIN_FOLDERS = (("/etc/profile.d", "*.*sh"), ("/etc/environment.d", "*.conf"))
SYSTEMD = ("/etc/systemd/system.conf", "/etc/systemd/user.conf")
SYSTEMD_FOLDERS = (
    ("/etc/systemd/system.conf.d", "*.conf"),
    ("/etc/systemd/user.conf.d", "*.conf"),
    ("/etc/systemd/system", "*.service"),
)
#: Files of variables that the units of schedulers and container engines read.
SERVICES = ("slurmd", "kubelet", "docker", "containerd", "crio", "podman")
#: Where conda and its kin are put for everybody. Homes are left alone: they may be another machine's.
CONDA_PARENTS = ("/opt", "/usr/local", "/root")
CONDA_NAMES = ("conda", "miniconda", "miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba")
#: The loader's own folders: what lies in them is the system's, and no line brings it.
OWN_FOLDERS = lazy(r"^(?:/usr)?/lib(?:32|64|x32)?(?:/[\w]+-linux-gnu[\w]*)?$")

FILE_MOST, LINES_MOST, FILES_MOST, NAMES_MOST = 1 << 18, 4000, 200, 4
#: Characters of a variable: a file that doubles one in each line ends nowhere.
VALUE_MOST = 1 << 16

_ASSIGNED = r"""(?:^|[\s;&|"'=])(?P<name>[A-Za-z_]\w*)=(?P<value>"[^"]*"|'[^']*'|[^\s;&|#]*)"""
_PAIRED = r"""^\s*(?:setenv\s+)?(?P<name>[A-Za-z_]\w*)\s+(?:(?:DEFAULT|OVERRIDE)=)?(?P<value>"[^"]*"|/\S*|\$\S*)"""
_JSON = r'"(?P<name>LD_LIBRARY_PATH|LD_PRELOAD)"\s*:\s*"(?P<value>[^"]*)"'
_SHELL, _WORDS, _STATE = lazy(_ASSIGNED), lazy(_PAIRED), lazy(_JSON)
_UNIT = lazy(r"^\s*(?:Default)?Environment=")
#: What a line adds to, also as ${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}.
_SELF = lazy(r"\$\{(?:LD_LIBRARY_PATH|LD_PRELOAD)(?::?[-+][^}]*)?\}+|\$(?:LD_LIBRARY_PATH|LD_PRELOAD)\b")
_USED = lazy(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_VERSION = lazy(r"\.so\.(\d+(?:\.\d+)+)$")
_DIST = lazy(r"^(?P<name>nvidia_(?P<library>\w+?)(?:_cu\d+)?)-(?P<version>[^-]+)\.dist-info$")

Facts = t.Dict[str, t.Any]


def probe(runner: Runner) -> t.List[Facts]:
    """Every line that names a folder with such libraries, in the order of the files.

    ``scope``: ``login``, ``service``, ``conda``, ``loader`` (ld.so.conf) or ``preload``; ``variable``: "" for the
    loader's own; ``libraries``: names, null where the folder is told by a variable that another file sets; ``driver``:
    version of a libcuda.so.1 there, "" where there is none, null where its file does not say it.
    """
    found: t.List[Facts] = []
    for scope, paths in (("login", _login(runner)), ("service", _services(runner)), ("conda", _conda(runner))):
        for path in paths[:FILES_MOST]:
            found += _of_file(runner, scope, path)
    return found + _of_loader(runner)


def _matching(runner: Runner, folders: t.Iterable[t.Tuple[str, str]]) -> t.List[str]:
    return [
        f"{where}/{name}" for where, form in folders for name in runner.listdir(where) if fnmatch.fnmatch(name, form)
    ]


def _login(runner: Runner) -> t.List[str]:
    return [*LOGIN, *_matching(runner, LOGIN_FOLDERS)]


def _services(runner: Runner) -> t.List[str]:
    units = [f"/etc/systemd/system/{name}" for name in runner.listdir("/etc/systemd/system") if name.endswith(".d")]
    files = [f"{folder}/{name}" for folder in ("/etc/default", "/etc/sysconfig") for name in SERVICES]
    return [
        *SYSTEMD,
        *_matching(runner, SYSTEMD_FOLDERS),
        *_matching(runner, [(one, "*.conf") for one in units]),
        *files,
    ]


def _conda(runner: Runner) -> t.List[str]:
    """Scripts and variables of conda's own environments, which their activation sets."""
    roots = [f"{parent}/{name}" for parent in CONDA_PARENTS for name in CONDA_NAMES]
    roots = [root for root in roots if runner.exists(f"{root}/conda-meta")]
    places = [*roots, *(f"{root}/envs/{name}" for root in roots for name in runner.listdir(f"{root}/envs"))]
    scripts = _matching(runner, [(f"{place}/etc/conda/activate.d", "*sh") for place in places])
    return scripts + [f"{place}/conda-meta/state" for place in places]


def _lines(runner: Runner, path: str) -> t.Iterator[t.Tuple[int, str]]:
    """The lines of a file with their numbers. ``runner.read`` takes empty lines at its begin away."""
    text = (runner.read_bytes(path, FILE_MOST) or b"").decode("utf-8", "replace")
    return enumerate(text.splitlines()[:LINES_MOST], 1)


def _of_file(runner: Runner, scope: str, path: str) -> t.List[Facts]:
    """The lines of one file that assign a variable of the loader."""
    known: t.Dict[str, str] = {}
    found: t.List[Facts] = []
    for number, line in _lines(runner, path):
        if line.lstrip().startswith("#"):
            continue
        for form in (_STATE, _WORDS, _SHELL):
            for match in form.finditer(_UNIT.sub(" ", line)):
                name, value = match.group("name"), _expanded(match.group("value").strip("\"'"), known)
                if name not in VARIABLES:
                    known[name] = value[:VALUE_MOST]
                    continue
                for item in re.split(r"[:\s]", value):
                    found += _entry(runner, scope, path, number, name, item.rstrip("/"))
    return found


def _expanded(value: str, known: t.Mapping[str, str]) -> str:
    """A value with what the file set before; what it adds to (LD_LIBRARY_PATH itself) is left out."""
    return _USED.sub(
        lambda match: known.get(match.group(1) or match.group(3)) or match.group(2) or match.group(0),
        _SELF.sub("", value),
    )


def _entry(runner: Runner, scope: str, path: str, line: int, variable: str, item: str) -> t.List[Facts]:
    """One folder (or, of LD_PRELOAD, one file) where it matters."""
    fact: Facts = {"scope": scope, "file": path, "line": line, "variable": variable, "folder": item}
    if "$" in item or "@{" in item:
        return [{**fact, "libraries": None, "count": 0, "driver": ""}]
    if not item.startswith("/"):
        return []
    if variable == "LD_PRELOAD" or scope == "preload":
        names = [os.path.basename(item)] if OF_THE_WHEEL.match(os.path.basename(item)) else []
        driver: t.Optional[str] = ""
    else:
        names = [name for name in runner.listdir(item) if OF_THE_WHEEL.match(name)]
        driver = _driver(runner, item)
    if not names and driver == "":
        return []
    return [{**fact, "libraries": names[:NAMES_MOST], "count": len(names), "driver": driver}]


def _driver(runner: Runner, folder: str) -> t.Optional[str]:
    path = f"{folder}/libcuda.so.1"
    if not runner.exists(path):
        return ""
    match = _VERSION.search(runner.realpath(path))
    return match.group(1) if match else None


def _of_loader(runner: Runner) -> t.List[Facts]:
    """ld.so.conf with what it includes, and ld.so.preload."""
    found: t.List[Facts] = []
    files = ["/etc/ld.so.conf"]
    for path in files:  # grows: included files come where they are read, which is all that a name needs
        for number, line in _lines(runner, path):
            words = line.split("#", 1)[0].replace(",", " ").replace(":", " ").split()
            if words and words[0] == "include":
                for pattern in words[1:]:
                    folder, form = os.path.split(os.path.join("/etc", pattern))
                    files += [one for one in _matching(runner, [(folder, form)]) if one not in files][:FILES_MOST]
                continue
            for item in words:
                folder = item.split("=", 1)[0].rstrip("/")
                if not OWN_FOLDERS.match(folder):
                    found += _entry(runner, "loader", path, number, "", folder)
    for number, line in _lines(runner, "/etc/ld.so.preload"):
        for item in line.split("#", 1)[0].replace(":", " ").split():
            found += _entry(runner, "preload", "/etc/ld.so.preload", number, "", item)
    return found


def doubled(runner: Runner, prefix: str) -> t.List[Facts]:
    """Libraries for which an environment holds two packages (nvidia-nccl-cu12 beside nvidia-nccl-cu13).

    ``prefix``: the environment's folder. ``{library, packages, shared}``: names with versions, and the shared objects
    that both say they installed, of which only the later one's is there.
    """
    found = []
    for folder in (
        f"{prefix}/{lib}/{name}/site-packages" for lib in ("lib", "lib64") for name in _pythons(runner, prefix)
    ):
        if runner.realpath(folder) != folder and folder.startswith(f"{prefix}/lib64/"):
            continue  # a link to lib
        by_library: t.Dict[str, t.List[t.Match[str]]] = {}
        for match in filter(None, map(_DIST.match, runner.listdir(folder))):
            by_library.setdefault(match.group("library"), []).append(match)
        for library, matches in by_library.items():
            if len(matches) > 1:
                files = [_shared_objects(runner, f"{folder}/{match.group(0)}/RECORD") for match in matches]
                names = [f"{match.group('name').replace('_', '-')} {match.group('version')}" for match in matches]
                shared = sorted(one for one in set().union(*files) if sum(one in of for of in files) > 1)
                found.append({"library": library, "packages": names, "shared": shared[:NAMES_MOST]})
    return found


def _pythons(runner: Runner, prefix: str) -> t.List[str]:
    return [name for name in runner.listdir(f"{prefix}/lib") if re.match(r"python3\.\d+$", name)]


def _shared_objects(runner: Runner, record: str) -> t.Set[str]:
    import csv

    rows = csv.reader((runner.read(record) or "").splitlines())
    return {row[0] for row in rows if row and ".so" in os.path.basename(row[0])}
