# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the environment the planned one, whole, and does it see the GPUs that the plan counts on?

``report`` is what `_matmul/survey.py` sent, its events merged into one
mapping, with ``ended`` (how the survey ended) and ``problem``.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import mismatch
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject

Facts = t.Mapping[str, t.Any]

_MISSING_OBJECT = re.compile(
    r"(\S+\.so[\w.]*): (?:cannot open shared object file|file too short|invalid ELF header|"
    r"undefined symbol|version `|cannot read file data|wrong ELF class|ELF load command)"
)
_LISTED = 5
#: A wrong one of these breaks torch or changes what it computes; others of the same name elsewhere do no harm.
_CRITICAL = re.compile(r"^lib(torch|c10|cu|nv|nccl)", re.I)


def judge(report: Facts, python: str, plan: t.Optional[Facts], owned: bool = True) -> t.List[Finding]:
    """The Findings of one environment, the first that stops the proof last.

    ``plan``: of the host, None where none was given; ``owned``: whether the
    environment is ours, so that another torch than planned is a fault.
    """
    subject = Subject("environment", python)
    if "python_version" not in report:
        return [_no_interpreter(report, python, subject)]
    found = [Finding("environment-python", "ok", subject, found=f"Python {report['python_version']}")]
    found += _files(report, subject)
    if "torch_version" not in report:
        return found + [_no_torch(report, subject)]
    found.append(Finding("torch-import", "ok", subject, found=f"torch {report['torch_version']}"))
    found += _wheel(report, plan, subject, owned)
    found += libraries(report["folder"], report["shipped"], report["libraries"], subject)
    return found


def _no_interpreter(report: Facts, python: str, subject: Subject) -> Finding:
    said = str(report.get("problem") or report.get("stderr") or "").strip()
    found = said.splitlines()[-1] if said else f"{python} ended with no answer"
    if report.get("ended") in ("hang", "stuck"):
        found = f"{python}: {_late(report)}"
    return Finding(
        "environment-python",
        "fail",
        subject,
        found=found,
        expected="an interpreter that starts",
        action="fix configuration",
        reason="install the environment again, or correct pytorch_python",
        evidence={"stderr": report.get("stderr", "")},
    )


def _late(report: Facts) -> str:
    """Why it was killed; and which process stays where not even that ended it, as on a dead server's file system."""
    return str(report.get("problem") or "no answer within its time limit")


def _files(report: Facts, subject: Subject) -> t.List[Finding]:
    damaged = list(report.get("damaged", []))
    if not damaged:
        return [Finding("environment-files", "ok", subject, found="every file of torch is as it was installed")]
    named = [
        f"{item['path']} {'is missing' if item['size'] is None else 'has another size'}" for item in damaged[:_LISTED]
    ]
    count = report["damaged_count"]
    more = f" and {count - _LISTED} more" if count > _LISTED else ""
    return [
        Finding(
            "environment-files",
            "fail",
            subject,
            found="; ".join(named) + more,
            expected="every file as its package recorded it",
            action="fix configuration",
            reason=f"install {', '.join(sorted({item['package'] for item in damaged}))} again",
            evidence={"damaged": damaged, "count": count},
        )
    ]


def _no_torch(report: Facts, subject: Subject) -> Finding:
    message = str(report.get("message") or report.get("stderr") or "")
    evidence = {"type": report.get("type", ""), "message": message}
    match = _MISSING_OBJECT.search(message)
    if match:
        evidence["library"] = match.group(1).rstrip(":")
    if report.get("ended") in ("hang", "stuck"):
        found = f"import torch: {_late(report)}"
    elif report.get("type"):
        found = f"{report['type']}: {message.splitlines()[0] if message else ''}"
    else:
        found = f"the interpreter died while it imported torch ({died(report.get('code'))})"
    return Finding(
        "torch-import",
        "fail",
        subject,
        found=found,
        expected="import torch",
        action="fix configuration",
        reason=f"{evidence['library']} cannot be loaded: install its package again" if "library" in evidence else "",
        evidence=evidence,
    )


def died(code: t.Optional[int]) -> str:
    """How a process ended, for a person. ``code`` as subprocess gives it."""
    if code is None:
        return "its end is not known"
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"


def _wheel(report: Facts, plan: t.Optional[Facts], subject: Subject, owned: bool) -> t.List[Finding]:
    """Is it the build that was planned? An environment of the user's may hold another release, which is said."""
    planned = (plan or {}).get("torch") or {}
    if not planned.get("version"):
        return []
    version, cuda = str(report["torch_version"]), str(report.get("torch_cuda") or "")
    want_version, want_variant = str(planned["version"]).split("+", maxsplit=1)[0], str(planned.get("variant") or "")
    state, action, reason = "ok", "none", ""
    if mismatch(version, cuda, want_version, want_variant):
        other_kind = want_variant != "" and (cuda == "") != (want_variant == "cpu")
        if owned or other_kind:
            state, action = "fail", "fix configuration"
            reason = "another index, or a later install, brought another build" if owned else ""
        else:
            state, reason = "warn", "the environment is the user's own: it is proved as it is"
    return [
        Finding(
            "wheel-as-planned",
            state,
            subject,
            found=f"torch {version}, built for {'CUDA ' + cuda if cuda else 'the CPU'}",
            expected=f"torch {want_version}, built for {want_variant or 'any device'}",
            action=action,
            reason=reason,
            evidence={"torch_version": version, "torch_cuda": cuda},
        )
    ]


def _stem(name: str) -> str:
    return name.split(".so")[0]


def libraries(
    folder: str, shipped: t.Mapping[str, str], loaded: t.Sequence[Facts], subject: Subject
) -> t.List[Finding]:
    """Which file was loaded for each library that the wheel brings.

    ``folder``: site-packages of torch. All paths without links, as the kernel names mapped files.
    """
    own = {_stem(name): path for name, path in shipped.items()}
    files = set(shipped.values())
    strangers = [
        item
        for item in loaded
        if _stem(item["name"]) in own and item["path"] not in files and not item["path"].startswith(folder + "/")
    ]
    evidence = {"libraries": [dict(item) for item in loaded]}
    if not strangers:
        return [
            Finding(
                "torch-libraries",
                "ok",
                subject,
                found=f"{len(loaded)} libraries, each from the environment",
                evidence=evidence,
            )
        ]
    bad = [item for item in strangers if _CRITICAL.match(item["name"])]
    named = "; ".join(f"{item['path']} instead of {own[_stem(item['name'])]}" for item in (bad or strangers)[:_LISTED])
    return [
        Finding(
            "torch-libraries",
            "fail" if bad else "warn",
            subject,
            found=named,
            expected="the libraries that the wheel brings",
            action="fix configuration",
            reason="a copy on the loader's path comes first: take it out of LD_LIBRARY_PATH and ld.so.conf",
            evidence=evidence,
        )
    ]


def architectures(arch_list: t.Sequence[str], devices: t.Sequence[Facts], python: str) -> t.List[Finding]:
    """Does the build hold code for each GPU? ``sm_90`` runs on 9.x from 9.0 on, ``compute_90`` on all later ones."""
    if not devices or not arch_list:
        return []
    subject = Subject("environment", python)
    lacking = sorted({d["compute_capability"] for d in devices if not _runs(arch_list, d["compute_capability"])})
    found = "built for " + " ".join(arch_list)
    if not lacking:
        return [Finding("torch-architectures", "ok", subject, found=found)]
    names = sorted({device["name"] for device in devices if device["compute_capability"] in lacking})
    return [
        Finding(
            "torch-architectures",
            "fail",
            subject,
            found=found,
            expected=f"code for compute capability {', '.join(lacking)} ({', '.join(names)})",
            action="fix configuration",
            reason="plan again for these GPUs: another variant of torch has code for them",
        )
    ]


def _runs(arch_list: t.Sequence[str], capability: str) -> bool:
    major, minor = (int(part) for part in capability.split("."))
    for name in arch_list:
        match = re.match(r"^(sm|compute)_(\d+)(\d)([af]?)$", name)
        if match is None:
            continue
        kind, code = match.group(1), (int(match.group(2)), int(match.group(3)))
        if match.group(4) == "a":  # for exactly this one
            if kind == "sm" and code == (major, minor):
                return True
        elif (code[0] == major and code[1] <= minor) or (kind == "compute" and code <= (major, minor)):
            return True
    return False
