# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout does next, from what became of each host so far: pure, so that a table can test it.

A host is in one state. ``waiting``: not touched. ``held``: not touched either, and why. ``changing``: between the mark
before its drain and its end, also where the controller died in between. ``failed``: something went wrong, and it stays
out. ``done``: changed, proved, recorded, back. Out of service are those that change and those that failed.
"""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._words import count as count_of

WAITING, HELD, CHANGING, FAILED, DONE = "waiting", "held", "changing", "failed", "done"
#: Out of service, or about to be.
OUT = (CHANGING, FAILED)

Record = dict[str, t.Any]
Records = t.Mapping[str, t.Mapping[str, t.Any]]


class Settings(t.NamedTuple):
    """The limits of a rollout. ``max_out`` 0 is no limit beside the batches'."""

    batches: tuple[int | str, ...]
    max_failures: int
    max_out: int | str


def settings(batches: t.Sequence[t.Any], max_failures: int, max_out: t.Any) -> Settings:
    """Raises ValueError where a limit cannot be meant."""
    if not batches:
        raise ValueError("rollout_batches is empty; give at least the size of the first batch, for example [1, '10%']")
    sizes = tuple(_size(item, "rollout_batches", smallest=1) for item in batches)
    if max_failures < 0:
        raise ValueError(f"rollout_max_failures is {max_failures}; 0 stops at the first failure")
    return Settings(sizes, max_failures, _size(max_out, "rollout_max_out", smallest=0))


def _size(value: t.Any, name: str, smallest: int) -> int | str:
    text = str(value).strip()
    number = text.removesuffix("%")
    # A part of nothing would be one host, as every part is at least.
    smallest = max(smallest, int(text.endswith("%")))
    if isinstance(value, bool) or not re.match(r"[0-9]{1,9}\Z", number) or int(number) < smallest:
        raise ValueError(f"{name} has {repr(value)[:50]}; a number of hosts or a part such as '10%' is needed")
    if text.endswith("%") and int(number) > 100:
        raise ValueError(f"{name} has {value!r}, which is more than all hosts")
    return text if text.endswith("%") else int(number)


def count(size: int | str, total: int) -> int:
    """A size in hosts: parts are rounded down, and at least one."""
    if isinstance(size, int):
        return size
    return max(1, math.floor(total * int(size.removesuffix("%")) / 100))


def merge(old: Records, wishes: t.Mapping[str, str], blocked: t.Mapping[str, str], *, reset: bool) -> dict[str, Record]:
    """The hosts at the start of a run: what the last one left of them, and those that are new.

    ``wishes``: a digest of what is asked of each host of this run; a host that was done under another one waits again.
    ``blocked``: hosts that cannot be changed now, and why; one that is out stays out. With ``reset`` all that was done
    is to be done again. A host that is out is never forgotten: its scheduler still keeps jobs from it.
    """
    merged = {name: dict(record) for name, record in old.items()}
    for name, wish in wishes.items():
        record = merged.get(name) or {"state": WAITING}
        if record["state"] == HELD or (record["state"] == DONE and (reset or record.get("wish") != wish)):
            record = {"state": WAITING}
        record["wish"] = wish
        if name in blocked:
            state = FAILED if record["state"] in OUT else DONE if record["state"] == DONE else HELD
            record.update(state=state, note=blocked[name])
        merged[name] = record
    return merged


def gone(old: Records, known: t.Collection[str], forget: t.Collection[str]) -> list[str]:
    """The hosts that are out and that the inventory does not know: removed, renamed, or it is another's journal.

    ``forget``: those of which the user says that nobody waits for them.
    """
    return sorted(
        name for name, record in old.items() if name not in known and name not in forget and record["state"] in OUT
    )


class Schedule(t.NamedTuple):
    """Who is changed in this run: names in their order, and the size of each batch."""

    hosts: list[str]
    sizes: list[int]

    def batches(self) -> t.Iterator[list[str]]:
        """The names of each batch."""
        start = 0
        for size in self.sizes:
            yield self.hosts[start : start + size]
            start += size


def schedule(records: Records, names: t.Sequence[str], blocked: t.Collection[str], limits: Settings) -> Schedule:
    """First those that are out already, in one batch; then the others where the last run ended.

    A batch leaves room for every failure that is allowed, so that never more than ``max_out`` hosts are out, whatever
    fails. Raises ValueError where that leaves no room at all.
    """
    room = len(names)
    if limits.max_out not in (0, "0"):
        most = count(limits.max_out, len(names))
        room = most - limits.max_failures
        if room < 1:
            raise ValueError(
                f"rollout_max_out lets {most} of {len(names)} hosts be out, and {limits.max_failures} may fail and stay"
                " out: no room to change another; raise rollout_max_out or lower rollout_max_failures"
            )
    usable = [name for name in names if name not in blocked]
    again = [name for name in usable if records[name]["state"] in OUT]
    fresh = [name for name in usable if records[name]["state"] == WAITING]
    sizes = [len(again)] if again else []
    behind = sum(records[name]["state"] == DONE for name in names)
    left, end, index = len(fresh), 0, 0
    while left:
        size = min(count(limits.batches[min(index, len(limits.batches) - 1)], len(names)), room)
        end, index = end + size, index + 1
        # The run before ended within this batch, or behind it.
        size = min(end - behind, left)
        if size > 0:
            sizes.append(size)
            left, behind = left - size, behind + size
    return Schedule(again + fresh, sizes)


def lost(records: Records, batch: t.Collection[str], ran: t.Collection[str]) -> list[str]:
    """The hosts of earlier batches of this run (``ran``) that never reached an end: Ansible dropped them."""
    return [name for name in ran if name not in batch and records[name]["state"] == CHANGING]


def stop(records: Records, batch: t.Collection[str], max_failures: int) -> str:
    """Why the batch may not begin, "" where it may. Who is in the batch is tried again and does not count yet."""
    failed = sorted(name for name, record in records.items() if record["state"] in OUT and name not in batch)
    if len(failed) > max_failures:
        hosts = count_of(len(failed), "host")
        return f"{hosts} failed and {max_failures} may ({_some(failed)}): no further host is touched"
    fresh = any(records[name]["state"] == WAITING for name in batch)
    if failed and fresh and not any(record["state"] == DONE for record in records.values()):
        return f"no host was proved with this change yet, and {_some(failed)} failed: no further host is touched"
    return ""


def restored(proved: t.Mapping[str, t.Any], driver_result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The plan that was proved last, as one that can be carried out again.

    A driver that was kept then is a downgrade now, where this rollout replaced it.
    """
    plan = dict(proved)
    driver = dict(plan.get("driver") or {})
    if driver_result.get("changed") and driver.get("action") == "keep" and driver.get("packages"):
        plan["driver"] = {**driver, "action": "downgrade"}
    return plan


def _some(names: t.Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
