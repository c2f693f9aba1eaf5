# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a device as fast as those of its model on other hosts, and as a healthy fleet once was? Pure.

A host whose eight GPUs are all slow looks fine to itself; only other hosts show it.
"""

from __future__ import annotations

import collections
import typing as t
from statistics import median

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import HOST, Finding, Subject
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.pace import SLOW_DEVIATIONS, SLOW_SHARE
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import product

SCHEMA = 1
#: A device is compared with those of at least so many hosts, its own included; two that differ say nothing.
FEWEST_HOSTS = 3
#: A model's usual rates are learnt from at least so many devices.
FEWEST_DEVICES = 3
#: TFLOPS that no device reaches.
MOST = 1e9
CHECK = "matmul-rate-fleet"
BASELINE_CHECK = "matmul-rate-baseline"
NO_BASELINE = "it is no baseline of rates"

Rates = t.Mapping[str, t.Sequence[float]]


class Device(t.NamedTuple):
    """TFLOPS of each round by product, of a GPU, or of all CPU processes of a host as one."""

    host: str
    kind: str
    name: str
    subject: Subject
    rates: Rates


class Usual(t.NamedTuple):
    """What devices of one model reach in one product: TFLOPS, and their median deviation."""

    middle: float
    deviation: float

    def short(self, value: float) -> float:
        """By which share ``value`` lies under the usual where that is remarkable, else 0."""
        gap = self.middle - value
        remarkable = gap > SLOW_SHARE * self.middle and gap > SLOW_DEVIATIONS * self.deviation
        return gap / self.middle if remarkable else 0.0


def usual(values: t.Sequence[float]) -> Usual:
    """Of the values of many devices."""
    middle = median(values)
    return Usual(middle, median([abs(value - middle) for value in values]))


def is_rate(value: t.Any) -> bool:
    """Whether it is TFLOPS that a device can reach: against NaN, infinity or true, nothing would ever be slow."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MOST


def devices_of(host: str, proof: t.Mapping[str, t.Any]) -> tuple[list[Device], list[Finding]]:
    """The devices of a proof (docs/architecture.md) whose rates were measured; and, of a damaged one, what is wrong."""
    gpus, processes, wrong = [], [], []
    listed = proof.get("devices") or []
    if not isinstance(listed, list):
        listed, wrong = [], [f"devices is {listed!r:.100}"]
    for number, device in enumerate(listed):
        try:
            if device["ended"] != "done":
                continue
            rates = {product(row): _rounds(row["rounds"]) for row in device["rates"] or [] if row.get("rounds")}
            if not rates:
                continue
            if device["kind"] == "cuda":
                gpus.append(Device(host, "cuda", str(device["name"]), Subject("gpu", str(device["key"])), rates))
            else:
                processes.append(rates)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            key = device.get("key", number) if isinstance(device, dict) else number
            wrong.append(f"device {key}: {error if isinstance(error, ValueError) else repr(error)}")
    damaged = Finding(
        CHECK,
        "unknown",
        found=f"the proof is damaged: {'; '.join(wrong[:5])}",
        expected=f"in each round TFLOPS above 0 and under {MOST:g}",
        action="drain and inspect",
        reason="prove this host again",
        evidence={"fault": "damaged", "wrong": len(wrong)},
    )
    as_one = [Device(host, "cpu", "CPU", HOST, _as_one(processes))] if processes else []
    return gpus + as_one, [damaged] if wrong else []


def _rounds(rounds: t.Any) -> list[float]:
    values = rounds if isinstance(rounds, list) else [rounds]
    for value in values:
        if not is_rate(value):
            raise ValueError(f"a round of {value!r:.40} TFLOPS")
    return [float(value) for value in values]


def _as_one(processes: t.Sequence[Rates]) -> Rates:
    """The median process of each round."""
    together: dict[str, list[t.Sequence[float]]] = collections.defaultdict(list)
    for rates in processes:
        for name, rounds in rates.items():
            together[name].append(rounds)
    return {name: [median(turn) for turn in zip(*rounds)] for name, rounds in together.items()}


def among_hosts(devices: t.Sequence[Device]) -> dict[str, list[Finding]]:
    """Of each host the Findings of its devices against those of their model on all hosts."""
    alike: dict[tuple[str, str], list[Device]] = collections.defaultdict(list)
    for device in devices:
        alike[device.kind, device.name].append(device)
    found: dict[str, list[Finding]] = collections.defaultdict(list)
    for members in alike.values():
        hosts = {device.host for device in members}
        if len(hosts) < FEWEST_HOSTS:
            continue
        turns = _turns(members)
        slow = set()
        for device in members:
            shorts = {name: _short(rounds, turns.get((name, len(rounds)))) for name, rounds in device.rates.items()}
            shares = {name: share for name, share in shorts.items() if share}
            if shares:
                slow.add(device.host)
                found[device.host].append(
                    _slow(CHECK, device, shares, f"{len(hosts) - 1} other hosts with {device.name}")
                )
        for host in hosts - slow:
            kind = members[0].kind
            found[host].append(
                Finding(
                    CHECK, "ok", found=f"as fast as {len(hosts) - 1} other hosts with {members[0].name}",
                    policy="report" if kind == "cpu" else "block",
                )
            )  # fmt: skip
    return dict(found)


def _turns(devices: t.Sequence[Device]) -> dict[tuple[str, int], list[Usual]]:
    """What is usual in each round of each product, by product and number of rounds."""
    rounds: dict[tuple[str, int], list[t.Sequence[float]]] = collections.defaultdict(list)
    for device in devices:
        for name, values in device.rates.items():
            rounds[name, len(values)].append(values)
    return {
        key: [usual(turn) for turn in zip(*values)] for key, values in rounds.items() if len(values) >= FEWEST_HOSTS
    }


def _short(rounds: t.Sequence[float], turns: t.Sequence[Usual] | None) -> float:
    """The least share by which every one of at least two rounds falls short; 0 where one does not."""
    if not turns or len(rounds) < 2:
        return 0.0
    return min(turn.short(value) for turn, value in zip(turns, rounds))


def _slow(check: str, device: Device, shares: t.Mapping[str, float], beside: str) -> Finding:
    worst = max(shares, key=lambda name: shares[name])
    on_cpu = device.kind == "cpu"
    return Finding(
        check,
        "warn" if on_cpu else "fail",
        device.subject,
        found=f"{shares[worst]:.0%} under {beside} in every round ({worst})",
        expected=f"at most {SLOW_SHARE:.0%} under",
        action="none" if on_cpu else "drain and inspect",
        policy="report" if on_cpu else "block",
        reason="other load on a CPU, or another CPU, cannot be told from a slow one" if on_cpu else "",
        evidence={"fault": "slow", "short": dict(shares)},
    )


def learn(devices: t.Sequence[Device]) -> dict[str, t.Any]:
    """The baseline's JSON form: what devices that were found healthy reach, by model and product.

    Raises ValueError where no model has enough of them.
    """
    values: dict[str, dict[str, list[float]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    refuse_too_few(collections.Counter(device.name for device in devices))
    for device in devices:
        for name, rounds in device.rates.items():
            values[device.name][name].append(median(rounds))
    models = {
        model: {
            name: {**usual(many)._asdict(), "devices": len(many)}
            for name, many in sorted(products.items())
            if len(many) >= FEWEST_DEVICES
        }
        for model, products in sorted(values.items())
    }
    models = {model: products for model, products in models.items() if products}
    if not models:
        raise ValueError(f"nothing can be learnt: no product was timed on {FEWEST_DEVICES} devices of a model")
    return {"schema": SCHEMA, "models": models}


def against_baseline(devices: t.Sequence[Device], baseline: t.Mapping[str, t.Any]) -> dict[str, list[Finding]]:
    """Of each host the Findings of its devices against a baseline. Raises ValueError where it is not of our form."""
    models = models_of(baseline)
    found: dict[str, list[Finding]] = collections.defaultdict(list)
    for device in devices:
        known = models.get(device.name, {})
        both = [name for name, rounds in device.rates.items() if name in known and len(rounds) > 1]
        if not both:
            had = ", ".join(sorted(models))
            found[device.host].append(
                Finding(
                    BASELINE_CHECK, "not_applicable", device.subject,
                    reason=f"the baseline has no rate of {device.name} in these products; it has {had}",
                )
            )  # fmt: skip
            continue
        shares = {name: min(known[name].short(value) for value in device.rates[name]) for name in both}
        slow = {name: share for name, share in shares.items() if share}
        if slow:
            found[device.host].append(_slow(BASELINE_CHECK, device, slow, "the baseline"))
        else:
            policy = "report" if device.kind == "cpu" else "block"
            found[device.host].append(
                Finding(BASELINE_CHECK, "ok", device.subject, found=f"{len(both)} products as learnt", policy=policy)
            )
    return dict(found)


def models_of(baseline: t.Any) -> dict[str, dict[str, Usual]]:
    """What is usual by model and product. Raises ValueError, with the place, where a baseline is not of our form."""
    place = "it"
    try:
        schema = baseline["schema"]
        if schema != SCHEMA or isinstance(schema, bool):
            raise ValueError(f"{NO_BASELINE}: schema {schema!r:.40}, where this version reads {SCHEMA}")
        models: dict[str, dict[str, Usual]] = {}
        for model, products in baseline["models"].items():
            place = f"models, {str(model)!r:.80}"
            models[str(model)] = {}
            for name, row in products.items():
                place = f"models, {str(model)!r:.80}, {str(name)!r:.80}"
                models[str(model)][str(name)] = _usual(row["middle"], row["deviation"])
        return models
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{NO_BASELINE}: {place}: {error!r:.200}") from None


def _usual(middle: t.Any, deviation: t.Any) -> Usual:
    """Of a row that may have been edited."""
    if not is_rate(middle) or not (is_rate(deviation) or (deviation == 0 and not isinstance(deviation, bool))):
        raise TypeError(f"a rate of {middle!r:.40} with a deviation of {deviation!r:.40}")
    return Usual(float(middle), float(deviation))


def foreseen(hosts: t.Iterable[tuple[t.Mapping[str, t.Any], t.Mapping[str, t.Any]]]) -> dict[str, int] | None:
    """How many devices of each model a proof of these hosts would measure; None where nobody knows before.

    ``hosts``: plan and Observation of each that has a plan.
    """
    counts: collections.Counter[str] = collections.Counter()
    for plan, observed in hosts:
        if plan.get("accelerator") == "cpu":
            counts["CPU"] += 1
            continue
        gpus = observed.get("gpus") or []
        if not gpus or any(not gpu.get("name") or (gpu.get("mig") or {}).get("current") for gpu in gpus):
            return None  # a driver that is still to come, or instances that only CUDA counts
        counts.update(str(gpu["name"]) for gpu in gpus)
    return dict(counts)


def refuse_too_few(counts: t.Mapping[str, int]) -> None:
    """Raise ValueError where no model has devices enough to learn from."""
    if max(counts.values(), default=0) < FEWEST_DEVICES:
        had = ", ".join(f"{count} of {model}" for model, count in sorted(counts.items())) or "none"
        raise ValueError(
            f"nothing can be learnt: {FEWEST_DEVICES} healthy devices of a model are needed, found {had}"
            " (a host without a GPU counts as one); run it over more hosts"
        )
