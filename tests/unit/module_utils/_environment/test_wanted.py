# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    default_store,
    default_venv,
    mismatch,
    redact,
    wanted,
)

PLAN = {
    "status": "ok",
    "torch": {
        "version": "2.8.0",
        "variant": "cu128",
        "requirement": "torch==2.8.0+cu128",
        "torchvision": "0.23.0",
        "torchaudio": None,
        "python_packages": {"numpy": "<2"},
    },
}


def test_plan_and_packages_become_requirements() -> None:
    got = wanted(PLAN, packages=["numpy", "Torchvision", "einops >= 0.8"])
    assert got.requirements == ("torch==2.8.0+cu128", "numpy", "torchvision==0.23.0", "einops >= 0.8")
    assert got.constraints == ("numpy<2",)
    assert got.build == "torch 2.8.0+cu128"


def test_key_changes_with_what_is_wanted_alone() -> None:
    key = wanted(PLAN).key
    assert key == wanted(PLAN, packages=[]).key
    assert key != wanted(PLAN, packages=["numpy"]).key
    assert key != wanted(PLAN, base_python="/usr/bin/python3.12").key
    moved = {"torch": dict(PLAN["torch"], index_url="https://mirror.example.invalid/")}  # type: ignore[call-overload]
    assert key == wanted(moved).key


@pytest.mark.parametrize(
    "packages, said",
    [
        (["torchaudio"], "knows no torchaudio for torch 2.8.0"),
        (["torch"], "the plan decides torch (2.8.0)"),
        ([""], "is no requirement"),
        (["-r /etc/passwd"], "is no requirement"),
    ],
)
def test_packages_that_cannot_be(packages: t.List[str], said: str) -> None:
    with pytest.raises(EnvironmentFailure, match="pytorch_packages") as caught:
        wanted(PLAN, packages=packages)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "found, cuda, version, variant, other",
    [
        ("2.13.0+cpu", None, "2.13.0", "cpu", False),
        ("2.13.0+cpu", "", "2.13.0", "cpu", False),
        ("2.13.0+cpu", None, "2.13.0", "cu130", True),
        ("2.14.1", None, "2.14.1", "cu130", False),  # a common index's build tells nothing until it is opened
        ("2.14.1", "13.0", "2.14.1", "cu130", False),
        ("2.14.1", "13.0", "2.14.1", "cpu", True),
        ("2.14.1", "", "2.14.1", "cu130", True),
        ("2.14.1", "12.6", "2.14.1", "cu130", True),
        ("2.13.0+cu130", "", "2.13.0", "cu130", True),  # its name lies
        ("2.13.1+cpu", None, "2.13.0", "cpu", True),
        ("2.13.0+cpu", "", "2.13.0", "", False),
    ],
)
def test_mismatch(found: str, cuda: t.Optional[str], version: str, variant: str, other: bool) -> None:
    assert mismatch(found, cuda, version, variant) is other


@pytest.mark.parametrize(
    "euid, environ, venv, store",
    [
        (0, {"HOME": "/root", "XDG_DATA_HOME": "/x"}, "/opt/gpufleet/venv", "/var/cache/gpufleet/wheels"),
        (1000, {"HOME": "/h/me"}, "/h/me/.local/share/gpufleet/venv", "/h/me/.cache/gpufleet/wheels"),
        (
            1000,
            {"HOME": "/h/me", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/c"},
            "/d/gpufleet/venv",
            "/c/gpufleet/wheels",
        ),
        (
            1000,
            {"HOME": "/h/me", "XDG_DATA_HOME": "rel"},
            "/h/me/.local/share/gpufleet/venv",
            "/h/me/.cache/gpufleet/wheels",
        ),
    ],
)
def test_default_places(euid: int, environ: t.Dict[str, str], venv: str, store: str) -> None:
    assert (default_venv(euid, environ), default_store(euid, environ)) == (venv, store)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("https://u:p%40ss@host/simple", "https://u:****@host/simple"),
        ("https://:token@host/simple", "https://:****@host/simple"),
        ("see https://a:b@one/ and http://c:d@two/", "see https://a:****@one/ and http://c:****@two/"),
        ("https://host:8080/simple", "https://host:8080/simple"),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text) == shown
