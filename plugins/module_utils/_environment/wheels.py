# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which wheels an environment takes, and each of them in the store: resolved, fetched, judged."""

from __future__ import annotations

import json
import os
import shutil
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import pip, space, wheel
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.venv import (
    Locked,
    from_json,
    recorded,
    to_json,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    mismatch,
    redact,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.workshop import Workshop
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

#: Bytes. Wheels below this size are downloaded together: starting pip takes longer than they do.
SMALL_WHEEL = 20_000_000


def resolve(shop: Workshop, marker: t.Mapping[str, t.Any]) -> t.Tuple[Locked, ...]:
    """The packages to install: those of an environment's marker or of an earlier resolution of the same wish, else
    what pip finds. Raises EnvironmentFailure where there are none, or another torch than planned."""
    wanted = shop.task.wanted
    if marker.get("key") == wanted.key and marker.get("packages"):
        # A repair, or an installation that was interrupted: the same packages again.
        return recorded(marker)
    kept = _kept(shop)
    if kept:
        return kept
    what = "resolving " + wanted.build
    shop.effects.say(what)
    source = shop.source()
    report = os.path.join(shop.tmp, "report.json")
    constraints = shop.file("constraints.txt", wanted.constraints)
    command = pip.resolve_command(
        shop.interpreter.executable,
        shop.program,
        source,
        requirements=shop.file("wanted.txt", pip.resolve_lines(wanted, source, constraints)),
        report=report,
        cache=shop.cache,
    )
    result = shop.run_pip(command, isolated=source.isolated, watch=lambda: shop.effects.say(what, shop.written()))
    if result.rc != 0:
        python = f"Python {shop.interpreter.minor} on {shop.interpreter.machine}"
        text = pip.resolution_failure(result.output, wanted, source, python, shop.settings())
        raise EnvironmentFailure("; ".join([text, *shop.warnings]))
    with open(report, encoding="utf-8") as stream:
        packages = tuple(pip.read_report(stream.read()))
    torch = _torch(packages)
    if mismatch(torch.version, None, wanted.version, wanted.variant):
        raise EnvironmentFailure(shop.other_build(torch.version, torch.url))
    return packages


def _kept(shop: Workshop) -> t.Tuple[Locked, ...]:
    """An earlier resolution of the same wish for the same Python, where all its wheels are still in the store."""
    try:
        with open(_kept_path(shop), encoding="utf-8") as stream:
            packages = from_json(json.load(stream)["packages"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Not there, or not what we wrote: it only saves asking again.
        return ()
    store = shop.task.source.store
    return packages if all(wheel.find_in_store(store, item.name, item.sha256) for item in packages) else ()


def _kept_path(shop: Workshop) -> str:
    tag = f"{shop.interpreter.implementation}{shop.interpreter.minor}-{shop.interpreter.machine}"
    return os.path.join(shop.task.source.store, f"resolved-{shop.task.wanted.key}-{tag}.json")


def keep(shop: Workshop, packages: t.Sequence[Locked]) -> None:
    """Keep the resolution beside its wheels, for the next host with the same wish."""
    write_atomic(_kept_path(shop), json.dumps({"packages": to_json(packages)}, indent=2, sort_keys=True) + "\n")


def fetch(shop: Workshop, packages: t.Sequence[Locked]) -> t.Dict[str, str]:
    """The wheel of each package, in the store, downloaded where it is not there yet and fits on the disk."""
    store = shop.task.source.store
    paths = {item.name: wheel.find_in_store(store, item.name, item.sha256) for item in packages}
    missing = [item for item in packages if not paths[item.name]]
    sizes = {item.name: shop.effects.size(item.url) if item.url else 0 for item in missing}
    check_space(shop, [path for path in paths.values() if path], sizes)
    total, done = sum(sizes.values()), 0
    for batch in _batches(missing, sizes):
        paths.update(_download(shop, batch, done, total))
        done += sum(os.path.getsize(paths[item.name]) for item in batch)
    return paths


def _download(shop: Workshop, batch: t.Sequence[Locked], done: int, total: int) -> t.Dict[str, str]:
    into = os.path.join(shop.tmp, "wheels")
    shutil.rmtree(into, ignore_errors=True)
    os.makedirs(into)
    source = shop.source()
    command = pip.download_command(
        shop.interpreter.executable,
        shop.program,
        source,
        requirements=shop.file("download.txt", [*source.lines(), *(item.line for item in batch)]),
        into=into,
        cache=shop.cache,
    )
    what = "downloading " + (f"{batch[0].name} {batch[0].version}" if len(batch) == 1 else f"{len(batch)} packages")
    shop.effects.say(what, done, total)
    result = shop.run_pip(
        command,
        isolated=source.isolated,
        watch=lambda: shop.effects.say(what, min(done + shop.written(), total), total),
    )
    if result.rc != 0:
        raise EnvironmentFailure(
            f"{what} failed: {pip.complaint(result.output)}; the finished wheels are kept in"
            f" {shop.task.source.store}, run again{shop.task.wanted.origin}"
        )
    paths = {}
    for item in batch:
        found = wheel.find_in_store(into, item.name, item.sha256)
        if not found:
            raise EnvironmentFailure(
                f"{item.name} {item.version} from {redact(item.url) or 'the index'} has another SHA-256 than"
                f" {item.sha256[0]}; nothing was installed{shop.task.wanted.origin}"
            )
        paths[item.name] = os.path.join(shop.task.source.store, os.path.basename(found))
        os.chmod(found, 0o644)
        os.replace(found, paths[item.name])
    return paths


def check_space(shop: Workshop, at_hand: t.Sequence[str], sizes: t.Mapping[str, int]) -> None:
    """Raise EnvironmentFailure where the environment, and wheels of these sizes, do not fit."""
    size = space.OVERHEAD_BYTES + sum(wheel.installed_bytes(path) for path in at_hand)
    size += int(sum(sizes.values()) * space.UNPACKED_RATIO)
    needs = [space.Need(shop.task.venv, size, "the environment")]
    if sizes:
        # pip writes a wheel twice, into its temporary folder and from there to where we take it.
        needs.append(space.Need(shop.task.source.store, sum(sizes.values()) + max(sizes.values()) * 2, "the wheels"))
    space.check(needs)


def judge(shop: Workshop, packages: t.Sequence[Locked], paths: t.Mapping[str, str]) -> None:
    """Raise EnvironmentFailure where the wheel of torch is another build than planned, whatever its name says."""
    torch = _torch(packages)
    if paths.get("torch"):
        version, cuda = wheel.torch_build(paths["torch"])
        if mismatch(version, cuda, shop.task.wanted.version, shop.task.wanted.variant):
            raise EnvironmentFailure(shop.other_build(version, torch.url, cuda))


def _torch(packages: t.Iterable[Locked]) -> Locked:
    for item in packages:
        if item.name == "torch":
            return item
    raise EnvironmentFailure("what pip resolved holds no torch")


def _batches(packages: t.Sequence[Locked], sizes: t.Mapping[str, int]) -> t.List[t.List[Locked]]:
    """The small wheels in one download, each large one in its own, after which it is kept."""
    small = [item for item in packages if 0 < sizes[item.name] < SMALL_WHEEL]
    return ([small] if small else []) + [[item] for item in packages if item not in small]
