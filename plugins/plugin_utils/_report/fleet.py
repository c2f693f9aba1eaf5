# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts' verdicts, made elsewhere and at other times, folded into one picture of the fleet."""

from __future__ import annotations

import calendar
import collections
import json
import os
import re
import stat
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import (
    POLICIES,
    READY,
    STATES,
    UNKNOWN,
    Finding,
    Subject,
    fold,
    from_dict,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._words import count

Verdict = t.Mapping[str, t.Any]

#: A check that fails on this many hosts and this share of them at once has one cause more likely than many.
COMMON_HOSTS = 3
COMMON_SHARE = 0.1
#: A value is the fleet's where more than this share of at least so many alike hosts have it.
MAJORITY = 0.5
FEWEST = 3
ODD = "fleet-odd-"
#: Seconds by which a host's clock may be ahead of the controller's.
CLOCK_SLACK = 300
LOUD = ("fail", "unknown", "warn")
#: A file greater than this is no verdict of a host: ours stay under 100 kB.
LARGEST = 4 << 20


class Host(t.NamedTuple):
    """What is known of one host: its newest verdict, less what is fine."""

    state: str
    judged_at: str
    source: str
    loud: list[Finding]
    checks_ok: int
    identity: dict[str, str]


def host_of(verdict: Verdict, source: str) -> Host:
    """The Host of a verdict's JSON form. Raises ValueError where it is not of the form."""
    try:
        findings = verdict["findings"]
        if not all(item["state"] in STATES and item["policy"] in POLICIES for item in findings):
            raise ValueError("a finding of no state or no policy")
        # What a run over a part of the fleet found odd is found again, over all of it.
        loud = [from_dict(item) for item in findings if item["state"] in LOUD and not _is_odd(item)]
        state = verdict["state"]
        judged_at = str(verdict["judged_at"])
        seconds_of(judged_at)
        fine = sum(item["state"] == "ok" for item in findings)
        judged = any(item["state"] == "ok" and item["policy"] == "block" for item in findings)
        identity = {str(key): str(value) for key, value in (verdict.get("identity") or {}).items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{source} is no verdict: {error!r}") from None
    # A file says what it likes in `state`; what counts is what was found.
    if state == READY and fold([*loud, *([Finding("rest", "ok")] if judged else [])]) != READY:
        raise ValueError(f"{source} says ready beside findings that are not")
    return Host(state, judged_at, source, loud, fine, identity)


def _is_odd(item: t.Mapping[str, t.Any]) -> bool:
    return str(item["check"]).startswith(ODD) and item["policy"] == "report"


def seconds_of(stamp: str) -> float:
    """RFC 3339 in UTC as seconds since the epoch. Raises ValueError."""
    return float(calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")))


def newest(one: Host | None, other: Host) -> Host:
    """Of two verdicts of one host the later."""
    return other if one is None or seconds_of(other.judged_at) >= seconds_of(one.judged_at) else one


def read_inbox(directory: str, names: t.Collection[str]) -> t.Iterator[tuple[str, Host | str]]:
    """Each host of ``names`` that has ``HOST.json`` in the folder, with its Host, or with what is wrong in words.

    Raises OSError where the folder cannot be read. Other files are left alone: an inbox may serve several fleets.
    """
    there = set(os.listdir(directory))
    for name in names:
        if f"{name}.json" not in there:
            continue
        path = os.path.join(directory, f"{name}.json")
        try:
            data = _load(path)
            if data.get("host", name) != name:
                raise ValueError(f"it is the verdict of {data['host']!r}")
            yield name, host_of(data, path)
        except (OSError, ValueError, RecursionError) as error:
            yield name, f"{path}: {error}"


def _load(path: str) -> Verdict:
    # Whoever may write here could leave a link or a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("no file")
        with open(descriptor, "rb", closefd=False) as stream:
            text = stream.read(LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(text) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("no JSON object")
    return data


def judge(hosts: t.Mapping[str, Host | str | None], at: float, max_age: float) -> dict[str, list[Finding]]:
    """Of each host the Findings that count now, its own and what only the fleet shows.

    ``hosts``: the newest verdict of each, text where it cannot be read, None where there is none. ``at``: seconds
    since the epoch. A verdict older than ``max_age`` seconds, or from the future, says nothing of today.
    """
    result = {name: _own(host, at, max_age) for name, host in hosts.items()}
    known = {name: host.identity for name, host in hosts.items() if isinstance(host, Host)}
    for name, finding in odd_ones_out(known):
        result[name].append(finding)
    return result


def _own(host: Host | str | None, at: float, max_age: float) -> list[Finding]:
    if host is None:
        return [_unheard("no verdict", "a verdict of this host")]
    if isinstance(host, str):
        return [_unheard(host, "a verdict that can be read")]
    found = list(host.loud)
    if host.checks_ok:
        found.append(Finding("checks", "ok", found=f"{count(host.checks_ok, 'check')} ok", observed_at=host.judged_at))
    age = at - seconds_of(host.judged_at)
    if age > max_age or age < -CLOCK_SLACK:
        when = f"{_span(age)} old" if age > 0 else f"{_span(-age)} in the future"
        found.append(_unheard(f"a verdict of {host.judged_at}, {when}", f"one of the last {_span(max_age)}"))
    if host.state != READY and fold(found) == READY:
        found.append(_unheard(f"{host.source} says {host.state} without a finding that says why", "its reason"))
    return found


def _unheard(found: str, expected: str) -> Finding:
    return Finding("host-heard", UNKNOWN, found=found, expected=expected, action="drain and inspect")


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def odd_ones_out(identities: t.Mapping[str, t.Mapping[str, str]]) -> t.Iterator[tuple[str, Finding]]:
    """Hosts that differ from what most hosts with the same GPUs have; each was proved as it is, so it is reported.

    ``identities``: of each host, what it is by name: driver, kernel, torch, ... and ``gpus``, by which hosts are alike.
    """
    alike: dict[str, list[str]] = collections.defaultdict(list)
    for name, identity in identities.items():
        alike[identity.get("gpus", "")].append(name)
    for names in alike.values():
        if len(names) < FEWEST:
            continue
        for key in sorted({key for name in names for key in identities[name]} - {"gpus"}):
            values = collections.Counter(identities[name].get(key, "unknown") for name in names)
            usual, times = values.most_common(1)[0]
            if times == len(names) or times <= MAJORITY * len(names):
                continue
            for name in names:
                value = identities[name].get(key, "unknown")
                if value != usual:
                    yield name, _odd(key, value, f"{usual}, as {times} of {len(names)} hosts alike")


def _odd(key: str, value: str, expected: str) -> Finding:
    word = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")
    return Finding(f"fleet-odd-{word}", "warn", found=f"{key} {value}", expected=expected, policy="report")


def in_common(findings: t.Mapping[str, t.Sequence[Finding]]) -> list[Finding]:
    """What fails on so many hosts at once that one cause is more likely than many: look there first."""
    hosts: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for name, items in findings.items():
        for item in items:
            if item.state in ("fail", "unknown"):
                hosts[item.check, item.state].add(name)
    return [
        Finding(
            "fleet-in-common",
            "warn",
            Subject("fleet", check),
            found=f"{check} is {state} on {len(names)} of {len(findings)} hosts",
            expected="one host at a time; look for one cause first",
            policy="report",
            evidence={"hosts": sorted(names)[:20]},
        )
        for (check, state), names in sorted(hosts.items())
        if len(names) >= max(COMMON_HOSTS, COMMON_SHARE * len(findings))
    ]
