# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a fleet's plan: text that can be read, compared by diff and installed from.

    schema: 1
    hosts:
      gpu01: torch-2.15.0+cu132 driver-580.178.04 python-3.12 x86_64
    plans:
      torch-2.15.0+cu132 driver-580.178.04 python-3.12 x86_64:
        parts: {torch: {version: 2.15.0, variant: cu132, ...}, driver: {...}, ...}
        target: {python: "3.12", arch: x86_64, glibc: "2.39"}
        wheels:
        - torch==2.15.0 --hash=sha256:...

``build`` makes the text from plans and the wheels found for them (``wheels.resolve``), ``check`` holds a later plan
against it. What a plan says of the way there (action, packages, reasons) changes once a host is converged and is not
locked; what it says of the goal is. An empty cell of the lock, such as the driver's version where only its branch was
known, binds nothing.
"""

from __future__ import annotations

import typing as t

import yaml

SCHEMA = 1
HEADER = "# Lock of a fleet's plan, made by plan.yml -e plan_lock=FILE: make it again rather than edit it.\n"
#: The cells of a plan that a lock binds.
PARTS: t.Mapping[str, tuple[str, ...]] = {
    "torch": ("version", "variant", "index_url", "torchvision", "torchaudio", "triton"),
    "driver": ("branch", "version", "kernel_module"),
    "cuda": ("runtime", "toolkit"),
    "cudnn": ("version",),
    "nccl": ("version",),
    "fabric_manager": ("required", "version", "nvlsm", "imex"),
}
TARGET = ("python", "arch", "glibc")
#: Cells that bind nothing: the version of a branch whose releases are not known, the module of a kept driver.
NOT_KNOWN = (None, "", "unknown")

Plan = t.Mapping[str, t.Any]


class LockProblem(Exception):
    """A lock that cannot be made or read; the text says what is needed, what was found and where."""


class Locked(t.TypedDict):
    """What ``build`` takes of a host: its plan, its target and the lines of its wheels.

    ``target`` is python ("3.12"), arch and glibc; ``wheels`` are lines ``name==version --hash=sha256:...``.
    """

    plan: Plan
    target: t.Mapping[str, str]
    wheels: t.Sequence[str]


class Difference(t.TypedDict):
    """One cell in which a plan is not what the lock says; ``locked`` and ``planned`` are None where there is none."""

    host: str
    cell: str
    locked: t.Any
    planned: t.Any


def build(hosts: t.Mapping[str, Locked]) -> str:
    """Text of the lock. Raises LockProblem where a host's plan is a conflict, or it has no wheels."""
    conflicts = sorted(name for name, host in hosts.items() if host["plan"]["status"] != "ok")
    if conflicts:
        raise LockProblem(f"nothing is locked while these hosts have no plan: {', '.join(conflicts)}")
    plans: dict[str, dict[str, t.Any]] = {}
    names: dict[str, str] = {}
    for name in sorted(hosts):
        host = hosts[name]
        if not host["wheels"]:
            raise LockProblem(f"{name}: no wheels were found for its plan, so nothing can be locked")
        body = {
            "parts": _parts(host["plan"]),
            "target": {cell: str(host["target"][cell]) for cell in TARGET},
            "wheels": sorted(host["wheels"]),
        }
        names[name] = _name_of(body, plans)
        plans[names[name]] = body
    return HEADER + yaml.safe_dump(
        {"schema": SCHEMA, "hosts": names, "plans": plans}, sort_keys=True, width=1000, allow_unicode=True
    )


def parse(text: str) -> dict[str, t.Any]:
    """The lock of its text. Raises LockProblem where it is none, or one of another schema."""
    try:
        lock = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise LockProblem(f"not YAML: {problem}") from problem
    if not isinstance(lock, dict) or "schema" not in lock:
        raise LockProblem("no lock: it has no `schema`")
    if lock["schema"] != SCHEMA:
        raise LockProblem(f"a lock of schema {lock['schema']!r}, this release reads {SCHEMA}: make it again")
    hosts, plans = lock.get("hosts"), lock.get("plans")
    if not isinstance(hosts, dict) or not isinstance(plans, dict):
        raise LockProblem("a lock needs `hosts` and `plans`, each a mapping")
    for name, plan in hosts.items():
        body = plans.get(plan)
        if not isinstance(body, dict) or set(body) != {"parts", "target", "wheels"}:
            raise LockProblem(f"host {name}: its plan {plan!r} is not in the lock with parts, target and wheels")
        for line in body["wheels"]:
            if "==" not in line or " --hash=sha256:" not in line:
                raise LockProblem(f"plan {plan!r}: {line!r} is no `name==version --hash=sha256:...`")
    return lock


def check(text: str, host: str, plan: Plan, target: t.Mapping[str, str]) -> tuple[list[Difference], list[str]]:
    """A host's plan against the lock: the differences, and the lines to install where there are none.

    Raises LockProblem where the text is no lock.
    """
    lock = parse(text)
    if host not in lock["hosts"]:
        return [Difference(host=host, cell="host", locked=None, planned=host)], []
    body = lock["plans"][lock["hosts"][host]]
    if plan["status"] != "ok":
        return [Difference(host=host, cell="status", locked="ok", planned=plan["status"])], []
    planned = {
        **{f"{part}.{cell}": value for part, cells in _parts(plan).items() for cell, value in cells.items()},
        **{f"target.{cell}": str(target[cell]) for cell in TARGET},
    }
    locked = {
        **{f"{part}.{cell}": value for part, cells in body["parts"].items() for cell, value in cells.items()},
        **{f"target.{cell}": value for cell, value in body["target"].items()},
    }
    found = [
        Difference(host=host, cell=cell, locked=value, planned=planned.get(cell))
        for cell, value in sorted(locked.items())
        if value not in NOT_KNOWN and planned.get(cell) != value
    ]
    return found, [] if found else list(body["wheels"])


def check_any(text: str, host: str, plan: Plan, target: t.Mapping[str, str]) -> tuple[list[Difference], list[str]]:
    """The same for a host that may have what was locked for another, as one has that only a bundle reaches.

    Its own name counts first; the differences are those of the host of the lock that is most alike.
    """
    names = list(parse(text)["hosts"])
    if host in names or not names:
        return check(text, host, plan, target)
    answers = [check(text, name, plan, target) for name in names]
    return min(answers, key=lambda answer: len(answer[0]))


def describe(differences: t.Iterable[Difference]) -> list[str]:
    """A line a difference, for an error a person reads."""
    lines = []
    for item in differences:
        if item["cell"] == "host":
            lines.append(f"{item['host']}: not in the lock; make the lock again with this host in it")
        else:
            lines.append(f"{item['host']}: {item['cell']} is locked at {item['locked']}, planned is {item['planned']}")
    return lines


def _parts(plan: Plan) -> dict[str, dict[str, t.Any]]:
    return {part: {cell: plan[part].get(cell) for cell in cells} for part, cells in PARTS.items() if plan.get(part)}


def _name_of(body: t.Mapping[str, t.Any], taken: t.Mapping[str, t.Any]) -> str:
    """A name that a person recognises in a diff: the same for the same body, another for another one."""
    torch, driver = body["parts"]["torch"], body["parts"].get("driver", {})
    words = [f"torch-{torch['version']}+{torch['variant']}"]
    if driver.get("branch"):
        words.append(f"driver-{driver.get('version') or driver['branch']}")
    words += [f"python-{body['target']['python']}", body["target"]["arch"]]
    name, number = " ".join(words), 1
    while taken.get(name, body) != body:
        number += 1
        name = " ".join([*words, f"({number})"])
    return name
