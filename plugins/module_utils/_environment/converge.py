# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what is wanted to an environment that holds it: look, resolve, fetch, judge, install, look again.

Nothing is made at the environment's path before every wheel lies in the
store, is the build that the Plan asks for, and fits on the disk. The steps
know the machine through Effects alone.
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import pip, venv, wheel, wheels
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.venv import Found, Locked, recorded
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    Wanted,
    mismatch,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.workshop import Workshop


@dataclass(frozen=True)
class Outcome:
    """What was done, or would be in check mode."""

    changed: bool
    packages: t.Tuple[Locked, ...]
    before: t.Mapping[str, str]
    repaired: t.Mapping[str, t.Sequence[str]]
    warnings: t.Tuple[str, ...] = ()


def current(path: str, wanted: Wanted, found: Found) -> t.Optional[Outcome]:
    """The outcome without a change where the environment is as wanted already, else None. Starts no process."""
    marker = found.marker
    if found.kind != "ours" or marker.get("state") != venv.COMPLETE or marker.get("key") != wanted.key:
        return None
    packages = recorded(marker)
    if found.lacking(packages) or not venv.interpreter_works(path):
        return None
    return Outcome(False, packages, found.installed, {})


def predict(shop: Workshop, found: Found) -> Outcome:
    """What converge() would do: resolves, makes nothing, and writes in the work folder only."""
    venv.refuse_unless_writable(found, shop.task.venv)
    shop.open()
    return _outcome(shop, found, wheels.resolve(shop, found.marker))


def promised(wanted: Wanted, found: Found) -> Outcome:
    """What converge() would do with the wheels of a lock, which are not here yet: every package is named in it."""
    return Outcome(True, tuple(pip.read_lock(wanted.lock)), found.installed, {})


def converge(shop: Workshop, found: Found) -> Outcome:
    """Make the environment as wanted. Raises EnvironmentFailure where that cannot be."""
    done = False
    try:
        venv.refuse_unless_writable(found, shop.task.venv)
        shop.open()
        packages = wheels.resolve(shop, found.marker)
        # pip wants to see the wheel of every package that it may have to install, and of no other.
        paths = wheels.fetch(shop, found.lacking(packages) if _usable(shop, found) else packages)
        wheels.judge(shop, packages, paths)
        wheels.keep(shop, packages)
        _install(shop, found, packages, paths)
        done = True
    except OSError as error:
        raise EnvironmentFailure(
            f"{error.strerror} ({error.filename or shop.task.work}); {shop.task.venv} is not believed to be"
            " complete, and the next run goes on with it"
        ) from None
    finally:
        shop.close(done=done)
    return _outcome(shop, found, packages)


def _outcome(shop: Workshop, found: Found, packages: t.Tuple[Locked, ...]) -> Outcome:
    repaired = {item.name: found.damaged[item.name] for item in packages if item.name in found.damaged}
    return Outcome(True, packages, found.installed, repaired, tuple(shop.warnings))


def _usable(shop: Workshop, found: Found) -> bool:
    return (
        found.kind == "ours"
        and venv.interpreter_works(shop.task.venv)
        and venv.base_version(shop.task.venv).split(".")[:2] == shop.interpreter.minor.split(".")
    )


def _install(shop: Workshop, found: Found, packages: t.Sequence[Locked], paths: t.Dict[str, str]) -> None:
    task = shop.task
    wheels.check_space(shop, [path for path in paths.values() if path], {})
    lacking = found.lacking(packages)
    if task.when_busy == "fail" and any(item.name in found.installed for item in lacking):
        users = shop.effects.users_of(task.venv)
        if users:
            raise EnvironmentFailure(
                f"{task.venv} is in use by process {', '.join(map(str, users[:5]))}"
                f"{' and more' if len(users) > 5 else ''}, and would be changed under it; nothing was changed. Run"
                " again when it has ended, choose another pytorch_venv, or set pytorch_when_busy: proceed"
            )
    content = {
        "key": task.wanted.key,
        "torch": task.wanted.build,
        "packages": venv.to_json(packages),
        "base_python": shop.interpreter.executable,
    }
    venv.begin(task.venv, found, content)
    python = os.path.join(task.venv, "bin", "python")
    if not _usable(shop, found):
        shop.effects.say("making the environment")
        venv.drop_interpreter(task.venv)
        result = shop.effects.run(
            [shop.interpreter.executable, "-I", "-m", "venv", "--without-pip", task.venv], shop.environ(True)
        )
        if result.rc != 0:
            raise EnvironmentFailure(f"{python} could not be made: {pip.complaint(result.output)}")
    # What is there now: what a change of the interpreter left behind is not there any more.
    found = venv.look(task.venv)
    venv.forget(task.venv, found, lacking)
    shop.effects.say("installing " + task.wanted.build)
    lines = ["--no-index", "--find-links " + pip.quoted(task.source.store), *(item.line for item in packages)]
    if "pip" not in found.installed and "pip" not in {item.name for item in packages}:
        lines += [
            "--find-links " + pip.quoted(os.path.dirname(shop.pip_wheel)),
            f"pip=={'.'.join(map(str, wheel.pip_version(shop.pip_wheel)))}"
            f" --hash=sha256:{wheel.sha256(shop.pip_wheel)}",
        ]
    result = shop.run_pip(
        pip.install_command(python, shop.program, requirements=shop.file("install.txt", lines)), isolated=True
    )
    if result.rc != 0:
        raise EnvironmentFailure(
            f"{task.wanted.build} could not be installed into {task.venv}: {pip.complaint(result.output)};"
            " the environment is not complete, and the next run goes on with it"
        )
    _look_again(shop, packages)
    venv.complete(task.venv, content)


def _look_again(shop: Workshop, packages: t.Sequence[Locked]) -> None:
    found = venv.look(shop.task.venv)
    lacking = found.lacking(packages)
    if lacking:
        raise EnvironmentFailure(
            f"{shop.task.venv} is not as planned after the installation: "
            + "; ".join(
                f"{item.name} {item.version} wanted, {found.installed.get(item.name, 'none')} found"
                + (f", damaged {found.damaged[item.name][0]}" if item.name in found.damaged else "")
                for item in lacking
            )
        )
    with open(os.path.join(venv.site_packages(shop.task.venv), "torch", "version.py"), encoding="utf-8") as stream:
        version, cuda = wheel.parse_version_py(stream.read())
    if mismatch(version, cuda, shop.task.wanted.version, shop.task.wanted.variant):
        raise EnvironmentFailure(shop.other_build(version, "", cuda))


# pip
