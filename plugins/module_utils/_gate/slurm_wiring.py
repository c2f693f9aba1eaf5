# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether Slurm runs the gate: its settings, as the controller has them, against what they have to be.

slurm.conf is the site's and is not written; what is missing is said. Sources: slurm.conf(5), the parameters named here
and "Prolog and Epilog Scripts"; the restart of a job without the hold is `nohold_on_prolog_fail`.
"""

from __future__ import annotations

import fnmatch
import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

FOLDER = "/usr/local/lib/gpufleet"
PROLOG = f"{FOLDER}/slurm-prolog"
HEALTH = f"{FOLDER}/slurm-health"

#: The text of a script, None where it cannot be read.
Reader = t.Callable[[str], t.Optional[str]]


def settings(text: str) -> t.Dict[str, str]:
    """What ``scontrol show config`` prints, by name in small letters. Values of one list (``Prolog[0]``) are joined."""
    found: t.Dict[str, str] = {}
    for name, value in re.findall(r"^(\w+)(?:\[\d+\])? *= (.*)$", text, re.MULTILINE):
        key = name.lower()
        found[key] = ",".join(filter(None, (found.get(key), value.strip())))
    return found


def _runs(value: str, ours: str, read: Reader) -> bool:
    """Whether a setting runs our script: by name, by a pattern, or within a script of the site's own."""
    for path in (word.strip() for word in value.split(",")):
        if fnmatch.fnmatchcase(ours, path) or ours in (read(path) or ""):
            return True
    return False


def check(text: t.Optional[str], read: Reader) -> Finding:
    """One Finding. ``text``: of ``scontrol show config``, None where Slurm gave none."""
    if text is None:
        return Finding(
            "slurm-wiring", "unknown", found="scontrol show config gave no answer", policy="report",
            expected="an answer of slurmctld", action="fix configuration",
        )  # fmt: skip
    have = settings(text)
    words = {name: set(value.lower().split(",")) for name, value in have.items()}
    wanted = (
        (f"Prolog={PROLOG}", _runs(have.get("prolog", ""), PROLOG, read)),
        # Without the second a job of many nodes runs on the first while the others are still being asked.
        ("PrologFlags=Alloc,DeferBatch", {"alloc", "deferbatch"} <= words.get("prologflags", set())),
        ("SchedulerParameters=nohold_on_prolog_fail", "nohold_on_prolog_fail" in words.get("schedulerparameters", ())),
        ("JobRequeue=1", have.get("jobrequeue") == "1"),
        (f"HealthCheckProgram={HEALTH}", _runs(have.get("healthcheckprogram", ""), HEALTH, read)),
        ("HealthCheckInterval=300", not have.get("healthcheckinterval", "0").startswith("0")),
        ("HealthCheckNodeState=ANY,CYCLE", "any" in words.get("healthchecknodestate", ())),
    )
    missing = [line for line, there in wanted if not there]
    if not missing:
        return Finding("slurm-wiring", "ok", found="Slurm runs the gate before a job and from time to time")
    return Finding(
        "slurm-wiring", "warn", found="slurm.conf lacks " + ", ".join(missing), policy="report",
        expected="these settings, then scontrol reconfigure", action="fix configuration",
        evidence={"missing": missing},
    )  # fmt: skip
