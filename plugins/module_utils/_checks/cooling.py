# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cooling of a host as its BMC tells it: the air that enters, fans, leaks; and whether the BMC tells anything. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import HOST, Finding, Subject

Reading = t.Mapping[str, t.Any]

#: C. The highest inlet of ASHRAE class A2 (Thermal Guidelines for Data Processing Environments, 5th edition, 2021).
INLET_MAX_C = 35.0
#: Findings that speak against a step of load: a supply is gone, the air is hot, water is where none should be.
HAZARDS = ("psu-ac-lost", "psu-failed", "psu-redundancy", "psu-capacity", "inlet-hot", "leak-detected", "power-brake")


def hazards(findings: t.Iterable[t.Mapping[str, t.Any]]) -> t.List[str]:
    """The ids of the Findings, in their JSON form, that speak against a heavy load on this host now.

    Empty also where nothing was read: what a BMC does not tell, stops nobody.
    """
    return [str(one["id"]) for one in findings if one["check"] in HAZARDS and one["state"] in ("warn", "fail")]


def check(reading: Reading, inlet_max_c: float = INLET_MAX_C) -> t.List[Finding]:
    """The Findings of a reading; with none made, that of the BMC alone."""
    answers = bmc_answers(reading)
    if reading["state"] != "ok":
        return [answers]
    return [answers, _inlet(reading, inlet_max_c), *_fans(reading), *_leaks(reading)]


_WHAT_TO_DO = {
    "refused": "correct power_cooling_bmc_user and power_cooling_bmc_password: each run tries once",
    "untrusted": "name who signed it in power_cooling_ca_file",
    "malformed": "is power_cooling_bmc_host a BMC, and its firmware current?",
    "silent": "reach it from where it is asked, or reset it",
    "missing": "",
}


def bmc_answers(reading: Reading) -> Finding:
    """Whether there is a reading. A BMC that is silent is nobody's emergency at night."""
    subject = Subject("bmc", "" if reading["where"] == "in-band" else reading["where"])
    if reading["state"] == "none":
        return Finding("bmc-answers", "not_applicable", subject, reason=reading["error"], policy="report")
    if reading["state"] != "ok":
        action = "fix configuration" if reading["state"] in ("refused", "untrusted", "missing") else "ask facility"
        return Finding(
            "bmc-answers",
            "unknown",
            subject,
            reading["error"],
            "an answer",
            action,
            "report",
            _WHAT_TO_DO[reading["state"]],
            {"source": reading["source"], "state": reading["state"]},
        )
    errors = reading["errors"]
    if errors:
        first = next(iter(errors.items()))
        rest = f", and {len(errors) - 1} more parts" if len(errors) > 1 else ""
        found = f"it answers, but not all of it: {first[0]}: {first[1]}{rest}"
        return Finding("bmc-answers", "warn", subject, found, "all parts", "none", "report", evidence=dict(errors))
    return Finding("bmc-answers", "ok", subject, f"read through {reading['source']}", policy="report")


def _inlet(reading: Reading, most: float) -> Finding:
    inlets = [one for one in reading["inlets"] if one["celsius"] is not None]
    if not inlets:
        return Finding(
            "inlet-hot",
            "unknown",
            HOST,
            "the BMC tells no temperature of the air that enters",
            "a temperature",
            "none",
            "report",
        )
    levels = [(_level(one, most), one["celsius"], one) for one in inlets]
    level, _celsius, one = max(levels, key=lambda entry: (entry[0], entry[1]))
    found = f"{one['name']} {one['celsius']:g} C"
    evidence = {"inlets": [dict(entry) for entry in inlets]}
    if level == 2:
        under = f"under {one['critical_c']:g} C" if one["critical_c"] is not None else "under its critical limit"
        return Finding("inlet-hot", "fail", HOST, found, under, "ask facility", evidence=evidence)
    if level == 1:
        limit = most if one["caution_c"] is None else min(most, one["caution_c"])
        return Finding("inlet-hot", "warn", HOST, found, f"at most {limit:g} C", "ask facility", evidence=evidence)
    return Finding("inlet-hot", "ok", found=found)


def _level(one: t.Mapping[str, t.Any], most: float) -> int:
    """2: beyond what the BMC calls critical; 1: above its caution or the site's limit."""
    told = one.get("level")
    if told == "critical" or (one["critical_c"] is not None and one["celsius"] >= one["critical_c"]):
        return 2
    beyond = one["caution_c"] is not None and one["celsius"] >= one["caution_c"]
    return 1 if told == "caution" or beyond or one["celsius"] > most else 0


def _fans(reading: Reading) -> t.List[Finding]:
    """One fan is what a chassis is built to lose; two are not."""
    fans = reading["fans"]
    if not fans:
        why = "its BMC shows no fan: cooled by liquid, or by its enclosure"
        return [Finding("fan-failed", "not_applicable", reason=why, policy="report")]
    failed = [fan["name"] for fan in fans if fan["failed"]]
    if failed:
        state, action = ("warn", "replace") if len(failed) == 1 else ("fail", "drain and inspect")
        found = f"{len(failed)} of {len(fans)} fans: {', '.join(failed[:6])}"
        return [Finding("fan-failed", state, HOST, found, "no fan failed", action, evidence={"fans": failed})]
    blank = [fan["name"] for fan in fans if fan["failed"] is None]
    if blank:
        found = f"the BMC does not tell the health of {len(blank)} of {len(fans)} fans"
        return [Finding("fan-failed", "unknown", HOST, found, "a health of each", "none", "report")]
    return [Finding("fan-failed", "ok", found=f"{len(fans)} fans")]


def _leaks(reading: Reading) -> t.List[Finding]:
    """Water: said also where the BMC's own status stays "ok"."""
    leaks = reading["leaks"]
    wet = [leak for leak in leaks if leak["state"] == "critical"]
    damp = [leak for leak in leaks if leak["state"] == "warning"]
    blank = [leak for leak in leaks if leak["state"] is None]
    for some, state, action, policy in (
        (wet, "fail", "drain and inspect", "block"),
        (damp, "warn", "ask facility", "block"),
        (blank, "unknown", "ask facility", "report"),
    ):
        if some:
            told = ", ".join(f"{leak['name']}: {leak['text'] or 'says nothing'}" for leak in some[:6])
            return [Finding("leak-detected", state, HOST, told, "no leak", action, policy)]
    return [Finding("leak-detected", "ok", found=f"{len(leaks)} detectors are dry")] if leaks else []
