# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One piece of dnf's work, in dnf's own Python: the job is JSON in the first argument, the answer the last line.

The file's text travels to that interpreter, which has dnf's bindings wherever there is a dnf, and no Ansible. Nothing
of ours is imported. dnf 4, as on EL 9 and 10.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import importlib
import json
import logging
import os
import sys
import typing as t

#: What begins the line of the answer; scriptlets of packages print what they like before it.
MARK = "gpufleet-dnf: "
Job = t.Mapping[str, t.Any]


class Unavailable(Exception):
    """What was asked for is not to be had; the text says what there is."""


def main(argument: str) -> None:
    """Do the job ``call``: ``available``, ``resolve``, ``change``, ``download``.

    An error is an answer too: ``error``, ``locked``.
    """
    dnf = importlib.import_module("dnf")
    importlib.import_module("dnf.module.module_base")
    words = _Words()
    logger = logging.getLogger("dnf")
    logger.addHandler(words)
    try:
        answer = _do(dnf, json.loads(argument))
    except dnf.exceptions.LockError as error:
        answer = {"locked": str(error)}
    except (dnf.exceptions.Error, Unavailable, OSError, RuntimeError) as error:
        # What dnf logged on the way says which file of which repository, and which scriptlet.
        told = [str(error), *(line for line in words.lines if line not in str(error))]
        answer = {"error": "; ".join(" ".join(text.split()) for text in told if text)}
    sys.stdout.write(MARK + json.dumps(answer) + "\n")


class _Words(logging.Handler):
    """Remembers what dnf complained of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: t.List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self.lines:
            self.lines.append(text)


def _do(dnf: t.Any, job: Job) -> t.Dict[str, t.Any]:
    with contextlib.closing(dnf.Base()) as base:
        _configure(base, job)
        base.fill_sack(load_system_repo=job["call"] != "download")
        if job["bundle"]:
            base.add_remote_rpms(sorted(glob.glob(job["bundle"] + "/*.rpm")))
        streams = _streams(dnf, base, job)
        if job["call"] == "available":
            return {**_available(base, job), **streams}
        plugins = base._plugins  # pylint: disable=protected-access
        plugins.run_sack()  # what the stream let in is held by the locks too
        _goal(dnf, base, job["names"])
        base.resolve(allow_erasing=True)
        planned = {**_planned(base), **streams}
        if job["call"] == "resolve":
            return planned
        if job["call"] == "change":
            _free(importlib.import_module("rpm"))
        base.download_packages(list(base.transaction.install_set))
        for package in base.transaction.install_set:
            _check_signature(dnf, base, package)
        if job["call"] == "download":
            return {**planned, "paths": sorted(package.localPkg() for package in base.transaction.install_set)}
        base.do_transaction()
        return planned


def _configure(base: t.Any, job: Job) -> None:
    conf = base.conf
    conf.read()
    conf.substitutions.update_from_etc(conf.installroot)
    settings = {
        "assumeyes": True,
        "best": False,
        "exit_on_lock": True,
        "install_weak_deps": False,
        "clean_requirements_on_remove": False,
        "timeout": 30,
        "retries": 3,
        "debuglevel": 0,
    }
    for name, value in settings.items():
        setattr(conf, name, value)
    if job["scratch"]:
        conf.cachedir = job["scratch"] + "/cache"
        conf.reposdir = [job["scratch"] + "/etc/yum.repos.d"]
        # The plugin reads its settings from all of these; the last word is that of the copy.
        conf.pluginconfpath = [*conf.pluginconfpath, job["scratch"] + "/etc/plugins"]
    if job["call"] == "download":
        # Of a system without packages; the keys that are taken go into its database.
        conf.module_platform_id = conf.module_platform_id or _platform()
        conf.installroot = job["scratch"] + "/root"
    base.init_plugins()
    base.pre_configure_plugins()
    if not job["bundle"]:
        base.read_all_repos()
    base.configure_plugins()
    for repo in base.repos.iter_enabled():
        if repo.id.startswith("gpufleet-"):
            repo.skip_if_unavailable = False
            if job["scratch"]:
                repo.gpgkey = [f"file://{job['scratch']}/etc/{os.path.basename(key)}" for key in repo.gpgkey]
        if job["fresh"]:
            repo.metadata_expire = 0


def _platform() -> str:
    """``platform:el9`` of this host, as its os-release says it; "" where it does not."""
    with contextlib.suppress(OSError), open("/etc/os-release", encoding="utf-8") as stream:
        found = [line.partition("=")[2].strip().strip("\"'") for line in stream if line.startswith("PLATFORM_ID=")]
        return found[-1] if found else ""
    return ""


def _streams(dnf: t.Any, base: t.Any, job: Job) -> t.Dict[str, t.Any]:
    """Enable the stream that is asked for, ``name:stream`` or ``name:`` for none, in this process so far.

    ``stream``: the one that was enabled, "" for none; ``streams``: those that the repositories have.
    """
    name, _colon, wanted = job["stream"].partition(":")
    if not name:
        return {"stream": "", "streams": []}
    container = base._moduleContainer  # pylint: disable=protected-access
    there = sorted({module.getStream() for module in container.getModulePackages() if module.getName() == name})
    before = container.getEnabledStream(name) if there else ""
    found = {"stream": before, "streams": there}
    if wanted and wanted not in there:
        if not there:
            return found  # a repository without modules: locks alone hold there
        raise Unavailable(f"module {name} has the streams {', '.join(there)}, not {wanted}")
    if wanted != before and there:
        modules = dnf.module.module_base.ModuleBase(base)
        if wanted:
            modules.enable([f"{name}:{wanted}"])
        else:
            modules.reset([name])
    return found


def _evr(package: t.Any) -> str:
    """``3:580.95.05-1.el9``, without an epoch of 0."""
    return f"{package.epoch}:{package.v}-{package.r}" if int(package.epoch) else f"{package.v}-{package.r}"


def _available(base: t.Any, job: Job) -> t.Dict[str, t.Any]:
    """``{name: versions}``, newest first, of globs of names; with ``all`` also what is hidden."""
    hawkey = importlib.import_module("hawkey")
    query = base.sack.query(flags=hawkey.IGNORE_EXCLUDES if job["all"] else hawkey.IGNORE_REGULAR_EXCLUDES)
    query = query.available().filter(arch=["noarch", base.conf.substitutions["basearch"], base.conf.arch])
    query = query.filter(name__glob=job["names"])
    found: t.Dict[str, t.List[str]] = {}
    for package in sorted(query, reverse=True):
        versions = found.setdefault(package.name, [])
        if _evr(package) not in versions:
            versions.append(_evr(package))
    return {"available": found}


def _goal(dnf: t.Any, base: t.Any, names: t.Sequence[str]) -> None:
    """``name=version`` is installed in that version, newer or older, ``name`` in any; ``name-`` goes."""
    for item in names:
        name, _equals, version = item.partition("=")
        if version:
            epoch, _colon, rest = version.rpartition(":")
            whole = f"{name}-{epoch or 0}:{rest}"
            if not dnf.subject.Subject(whole).get_best_query(base.sack).installed():
                base.install(whole)
        elif name.endswith("-"):
            with contextlib.suppress(dnf.exceptions.MarkingError):
                base.remove(name[:-1])
        else:
            base.install(name)


def _planned(base: t.Any) -> t.Dict[str, t.Any]:
    """``install``: name to (old or "", new); ``remove``: name to version. What replaces another is no removal."""
    old = {package.name: _evr(package) for package in base.transaction.remove_set}
    new = {package.name: _evr(package) for package in base.transaction.install_set}
    return {
        "install": {name: (old.get(name, ""), version) for name, version in new.items()},
        "remove": {name: version for name, version in old.items() if name not in new},
    }


def _free(rpm: t.Any) -> None:
    """rpm waits for its own lock without end; what it would wait for is told at once instead."""
    path = rpm.expandMacro("%{?_rpmlock_path}") or rpm.expandMacro("%{_dbpath}/.rpm.lock")
    with contextlib.suppress(FileNotFoundError), open(path, "rb+") as stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            dnf = importlib.import_module("dnf")
            raise dnf.exceptions.LockError(f"rpm's lock {path} is held by another process") from None


def _check_signature(dnf: t.Any, base: t.Any, package: t.Any) -> None:
    """A package is from who signs its repository: 0 fine, 1 its key is to be taken from the repository's settings."""
    result, problem = base.package_signature_check(package)
    if result == 1:
        base.package_import_key(package, askcb=lambda *_args: True)
        result, problem = base.package_signature_check(package)
    if result:
        raise dnf.exceptions.Error(f"{package}: {problem}")


if __name__ == "__main__":
    main(sys.argv[1])
