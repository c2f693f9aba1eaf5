# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Would a program get another copy of the wheel's libraries than the wheel's own? Lines that say so, by file. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import Judged, Observation, fail, ok, warn
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import HostCheck, host_check
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject

Facts = t.Mapping[str, t.Any]

_LISTED = 4
_WHO = {"login": "", "service": " of a service", "conda": " where it is activated"}
_EXPECTED = "nothing before the libraries that the wheel brings"


def _brings(fact: Facts) -> str:
    if fact["libraries"] is None:
        return "a folder that another file tells"
    names = list(fact["libraries"])
    if fact["driver"] != "":
        names.insert(0, f"libcuda.so.1 {fact['driver'] or 'of no stated version'}")
    more = fact["count"] - len(fact["libraries"])
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def says(fact: Facts) -> str:
    """One line of a file, for a person: where it is, what it does, what that brings."""
    place = f"{fact['file']}:{fact['line']}"
    if fact["scope"] == "preload":
        return f"{place} loads {fact['folder']} into every program"
    if fact["variable"] == "LD_PRELOAD":
        return f"{place} puts {fact['folder']} into LD_PRELOAD{_WHO[fact['scope']]}"
    if fact["scope"] == "loader":
        return f"{place} puts {fact['folder']} on the loader's path ({_brings(fact)})"
    return f"{place} puts {fact['folder']} into {fact['variable']}{_WHO[fact['scope']]} ({_brings(fact)})"


def before_the_wheel(facts: t.Sequence[Facts], driver: str, first: str) -> t.Tuple[t.List[Facts], t.List[Facts]]:
    """What comes before the wheel's own libraries, or the driver's: for every program; only where a variable is set.

    ``driver``: version of the loaded module; ``first``: path of the libcuda.so.1 that the loader takes. What ld.so.conf
    names comes after the RUNPATH of the wheel's libraries: of it only a driver's library counts, which no wheel has.
    """
    everybody: t.List[Facts] = []
    some: t.List[Facts] = []
    for fact in facts:
        other_driver = fact["driver"] != "" and bool(driver) and fact["driver"] != driver
        if fact["scope"] == "preload":
            everybody.append(fact)
        elif fact["scope"] == "loader":
            if other_driver:
                (everybody if first.startswith(fact["folder"] + "/") else some).append(fact)
        elif fact["libraries"] is None or fact["count"] or other_driver:
            some.append(fact)
    return everybody, some


@host_check("library-shadowed", "block", "shadows", "driver.libraries", "driver.version")
def library_shadowed(observed: Observation) -> Judged:
    """Another copy of a library of the wheel, or of the driver, comes first. LD_LIBRARY_PATH and LD_PRELOAD, set for
    logins (/etc/environment, profile.d), services (systemd) or by conda, come before the wheel's own path: warn, since
    only such programs get it (pytorch#80637, #144244). ld.so.conf comes after it; the driver's own library alone is
    taken from there, so that a cuda-compat folder makes it another driver's: fail where it is the first (error 804 on
    GPUs without forward compatibility). /etc/ld.so.preload: fail."""
    facts = observed["shadows"]
    first = next((one["path"] for one in observed["driver"]["libraries"] if one["name"] == "libcuda.so.1"), "")
    everybody, some = before_the_wheel(facts, observed["driver"]["version"], first)
    if everybody:
        return fail(_listed(everybody + some), _EXPECTED, "fix configuration", "take it out and run ldconfig")
    if some:
        return warn(
            _listed(some),
            _EXPECTED,
            "fix configuration",
            "take it out: a program that needs the folder names it when it is linked (-rpath)",
        )
    return ok(f"{_listed(facts)}: after the wheel's own" if facts else "no line brings another copy")


def _listed(facts: t.Sequence[Facts]) -> str:
    more = f"; and {len(facts) - _LISTED} more" if len(facts) > _LISTED else ""
    return "; ".join(says(fact) for fact in facts[:_LISTED]) + more


def doubled(packages: t.Sequence[Facts], python: str) -> t.List[Finding]:
    """Two packages of one library in an environment: those that share files have overwritten each other."""
    subject = Subject("environment", python)
    if not packages:
        return [Finding("library-packages", "ok", subject, found="one package for each of NVIDIA's libraries")]
    shared = [one for one in packages if one["shared"]]
    named = [
        " beside ".join(one["packages"]) + (f", both with {one['shared'][0]}" if one["shared"] else "")
        for one in (shared or packages)
    ]
    return [
        Finding(
            "library-packages",
            "fail" if shared else "warn",
            subject,
            found="; ".join(named[:_LISTED]),
            expected="one package for each library, for the CUDA of the wheel",
            action="fix configuration" if shared else "none",
            reason="the one that was installed last has overwritten the other: make the environment anew"
            if shared
            else "the wheel loads the one that it requires; the other takes space",
            evidence={"doubled": [dict(one) for one in packages]},
        )
    ]


def explained(finding: Finding, facts: t.Sequence[Facts], inherited: str) -> str:
    """Why torch got a file that is not the wheel's: the lines of this host that name its folder, else any that could.

    ``finding``: of `_checks/environment.py`; ``inherited``: LD_LIBRARY_PATH of the process that started the worker.
    """
    inherits = [part for part in inherited.split(":") if part]
    suspects = [fact for fact in facts if fact["libraries"] is None or fact["count"]]
    named = [fact for fact in suspects if str(fact["folder"]) in finding.found]
    lines = [says(fact) for fact in (named or [fact for fact in suspects if fact["folder"] in inherits])[:_LISTED]]
    if inherits:
        lines.insert(0, f"LD_LIBRARY_PATH of this run is {inherited}")
    return "; ".join(lines)


CHECKS: t.Tuple[HostCheck, ...] = (library_shadowed,)
