# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans against the judge: over all wheels, all drivers, pairs of GPUs and pairs of options."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from ansible_collections.gpufleet.pytorch.tests.unit.plugin_utils._compat.properties.judge import (
    BRANCH_CUDA,
    GPUS,
    Question,
    judge,
    possible,
    published,
)

DRIVERS = ("470.256.02", "525.60.13", "535.288.01", "550.163.01", "570.211.01", "580.95.05", "595.84", "615.71.09")
SPREAD = ("2.0.1", "2.4.1", "2.7.1", "2.8.0", "2.11.0", "2.15.0")


def verdict(ask, question):
    """What is wrong with the answer to a question, "" for nothing."""
    plan = ask(question.torch, question.options())
    if plan["status"] == "ok":
        faults = judge(question, plan)
        return f"{question}: {'; '.join(faults)}" if faults else ""
    if not plan["conflicts"]:
        return f"{question}: a conflict without a cause"
    others = possible(question)
    return f"{question}: {[c['rule'] for c in plan['conflicts']]}, yet {others[:3]} would do" if others else ""


def check(ask, questions):
    wrong = [line for line in (verdict(ask, question) for question in questions) if line]
    assert not wrong, f"{len(wrong)} wrong, first:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("torch", published())
def test_every_wheel_of_a_release(ask_fast, torch):
    check(
        ask_fast,
        (
            Question(torch, (gpu,), cuda=cuda, arch=arch, python=python, glibc=glibc)
            for gpu in GPUS
            for cuda in ("auto", *published()[torch]["cuda"])
            for arch in ("x86_64", "aarch64")
            for python, glibc in (("3.11", "2.39"), ("3.8", "2.28"), ("3.14", "2.36"), ("3.10", "2.17"))
        ),
    )


@pytest.mark.parametrize("gpu", GPUS)
def test_every_driver_under_a_gpu(ask_fast, gpu):
    policies = ("auto", "keep", *(str(branch) for branch in BRANCH_CUDA if branch >= 470))
    check(
        ask_fast,
        (
            Question(
                torch,
                (gpu,),
                arch="aarch64" if GPUS[gpu].arm else "x86_64",
                python="3.11",
                driver=driver,
                driver_owner=owner,
                driver_policy=policy,
                kernel_module=module,
            )
            for torch in SPREAD
            for driver, owner in (("", "nobody"), *itertools.product(DRIVERS, ("package", "runfile")))
            for policy in policies
            for module in ("auto", "open", "proprietary")
            if (driver or policy != "keep") and (module == "auto" or torch == "2.8.0")
        ),
    )


@pytest.mark.parametrize("torch", ["2.6.0", "2.8.0", "2.11.0", "2.15.0"])
def test_every_pair_of_gpus(ask_fast, torch):
    pairs = itertools.product(itertools.combinations(GPUS, 2), ("x86_64", "aarch64"))
    check(ask_fast, (Question(torch, pair, python="3.11", arch=arch) for pair, arch in pairs))


def asked_at_random(number):
    draw = random.Random(number)
    torch = draw.choice(list(published()))
    driver = draw.choice(("", "", *DRIVERS, "580.65.06", "450.80.02"))
    return Question(
        torch=torch,
        gpus=tuple(draw.sample(list(GPUS), draw.choice((1, 1, 1, 2, 3)))),
        cuda=draw.choice(("auto", "auto", *published()[torch]["cuda"])),
        arch=draw.choice(("x86_64", "x86_64", "x86_64", "aarch64")),
        python=draw.choice(("3.11", "3.11", "3.9", "3.10", "3.12", "3.13", "3.13t", "3.14", "3.15")),
        glibc=draw.choice(("2.39", "2.39", "2.28", "2.26", "2.17")),
        driver=driver,
        driver_owner=draw.choice(("package", "package", "runfile", "dgx_os", "vgpu_guest")) if driver else "nobody",
        driver_policy=draw.choice(
            ("auto", "auto", "auto", "535", "570", "580", "595", "620", *(["keep"] if driver else []))
        ),
        kernel_module=draw.choice(("auto", "auto", "auto", "open", "proprietary")),
        forward_compat=draw.choice((False, False, True)),
    )


@pytest.mark.parametrize("block", range(4))
def test_questions_at_random(ask_fast, block):
    check(ask_fast, (asked_at_random(number) for number in range(block * 1000, block * 1000 + 1000)))


@pytest.mark.parametrize("block", range(4))
def test_every_remedy_resolves(remedies, block):
    """A remedy, applied, gives a plan that the judge accepts."""
    kept = {field.name for field in dataclasses.fields(Question)} - {"torch", "gpus", "cuda"}
    wrong, seen = [], 0
    for number in range(block * 150, block * 150 + 150):
        question = asked_at_random(number)
        for says, request, plan in remedies(question.torch, question.options()):
            seen += 1
            if plan["status"] != "ok":
                wrong.append(f"{question}: {says}: {plan['conflicts']}")
                continue
            changed = Question(
                torch=plan["torch"]["version"],
                gpus=tuple(wish.name for wish in request.gpus),
                cuda="auto" if request.cuda == "auto" else "cu" + request.cuda.replace(".", ""),
                **{name: getattr(request, name) for name in kept},
            )
            if faults := judge(changed, plan):
                wrong.append(f"{question}: {says}: {faults}")
    assert not wrong, f"{len(wrong)} wrong, first:\n" + "\n".join(wrong[:5])
    assert seen > 50


def test_the_answer_does_not_depend_on_order_or_on_what_was_asked_before(ask_fast):
    questions = [asked_at_random(number) for number in range(300)]
    first = [ask_fast(question.torch, question.options()) for question in questions]
    for question, before in reversed(list(zip(questions, first, strict=True))):
        again = ask_fast(question.torch, dataclasses.replace(question, gpus=question.gpus[::-1]).options())
        assert again["status"] == before["status"]
        if before["status"] == "ok":
            assert (again["torch"], again["driver"]) == (before["torch"], before["driver"])


VALUES = {
    "torch": ("2.8.0", "latest", "2.8", ">=2.6,<2.9", "2.9.0+cu130", "2.8.0+cpu", 2.1, 2, "", None, "9.9.9", ["2.8.0"]),
    "os_id": ("ubuntu", "debian", "rocky", "sles", "arch", "", None, 5),
    "os_version": ("24.04", "12", "9.8", "rolling", "", None, 24.04),
    "arch": ("x86_64", "aarch64", "riscv64", "", None),
    "glibc": ("2.39", "2.17", "", None, 2.3, "musl"),
    "kernel": ("6.8.0-90-generic", "5.14.0-687.5.1.el9_8.x86_64", "", None, "linux", 6.12),
    "compiler": ("gcc 13.2.0", "", None),
    "virtualization": ("none", "wsl", "docker", "kvm", "", None),
    "python": ("3.12", "3.14", "2.7", 3.1, "3.13t", "", None),
    "gpus": (
        ["NVIDIA H100 80GB HBM3"], ["Tesla V100-SXM2-32GB", "NVIDIA B200"], [], "NVIDIA L4", ["nonsense"], None,
        [{"name": "x", "compute_capability": "9.0"}], [{"name": "x", "compute_capability": 8.9}], ["10de:2c3a"], [3],
        [{"nom": "x"}], {"name": "NVIDIA L4"}, ["NVIDIA GeForce GTX 1080 Ti"], [""],
    ),
    "nvswitch": ("auto", 0, 4, "4", "many", None, -1, True),
    "driver": ("", "580.95.05", "580.95.05-open", "470.86", "unknown", None, 580, 550.16, "999.1", "580"),
    "driver_owner": ("nobody", "package", "runfile", "wsl", "vgpu_guest", "unknown", "multiple", "", "me", None),
    "driver_policy": ("auto", "keep", "external", "580", 570, "999", "branch", None),
    "driver_source": ("auto", "os", "nvidia", "snap", None),
    "cuda": ("auto", "12.8", "cu128", 12.8, "cu118", "13", "banana", None),
    "kernel_module": ("auto", "open", "proprietary", "none", None),
    "forward_compat": (False, True, "yes", None, "perhaps"),
    "secure_boot": (False, True, "enabled", "unknown", "not_applicable", None, "maybe"),
}  # fmt: skip


def test_no_pair_of_options_gives_a_traceback(ask):
    """Each pair of options, each with each of its values, odd ones among them: an answer or a refusal by name."""
    plain = Question("2.8.0", ("NVIDIA L4",)).options()
    for one, other in itertools.combinations(VALUES, 2):
        for first, second in itertools.product(VALUES[one], VALUES[other]):
            options = {"torch": "2.8.0", **plain, one: first, other: second}
            plan = ask(options.pop("torch"), options)
            if plan["status"] == "ok":
                assert plan["torch"]["version"], (one, first, other, second)
                continue
            assert plan["conflicts"], (one, first, other, second)
            refused = [cause["subject"] for cause in plan["conflicts"] if cause["rule"] == "bad-option"]
            assert set(refused) <= {one, other}, (one, first, other, second)
