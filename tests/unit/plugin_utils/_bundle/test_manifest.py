# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle is taken where every file is what was gathered, and else refused by the name of the file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import manifest

WHEEL = "wheels/one-1.0-py3-none-any.whl"


@pytest.fixture
def bundle(tmp_path):
    folder = tmp_path / "a bundle"
    manifest.begin(folder)
    (folder / manifest.LOCK).write_text("schema: 1\n")
    (folder / WHEEL).write_bytes(b"one")
    (folder / "run" / "two-2.0-py3-none-any.whl").write_bytes(b"two")
    manifest.finish(folder)
    return folder


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / manifest.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def link(folder: Path) -> None:
    (folder / WHEEL).unlink()
    (folder / WHEEL).symlink_to("/etc/hostname")


def test_whole(bundle):
    assert sorted(manifest.verify(bundle)["files"]) == ["fleet.lock", "run/two-2.0-py3-none-any.whl", WHEEL]


def test_wheel_by_its_hash(bundle):
    digest = manifest.sha256(bundle / WHEEL)
    assert manifest.wheel(bundle, (digest,)) == bundle / WHEEL
    # What ./run needs is not what hosts are given.
    assert manifest.wheel(bundle, (manifest.sha256(bundle / "run" / "two-2.0-py3-none-any.whl"),)) is None


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / WHEEL).write_bytes(b"eno"), f"{WHEEL} has another SHA-256"),
        (lambda folder: (folder / WHEEL).write_bytes(b"on"), f"{WHEEL} has 2 bytes instead of 3"),
        (lambda folder: (folder / WHEEL).unlink(), f"{WHEEL} is missing"),
        (lambda folder: (folder / "wheels/more.whl").touch(), "wheels/more.whl is not in its manifest"),
        (link, "is no plain file"),
        (lambda folder: (folder / manifest.NAME).unlink(), "bundle.json is not there: gpufleet_bundle names no bundle"),
        (manifest.begin, "bundle.json is not there: bundle.yml was not finished"),
        (lambda folder: (folder / manifest.NAME).write_text("{"), "bundle.json cannot be read"),
        (lambda folder: (folder / manifest.NAME).write_text("[]"), "bundle.json is no manifest of ours"),
        (lambda folder: rewrite(folder, kind="other"), "bundle.json is no manifest of ours"),
        (lambda folder: rewrite(folder, schema=2), "of schema 2, this release reads 1"),
        (lambda folder: rewrite(folder, files={"../x": {"sha256": "", "size": 1}}), "does not list files inside"),
        (lambda folder: rewrite(folder, files={"/etc/x": {"sha256": "", "size": 1}}), "does not list files inside"),
        (lambda folder: rewrite(folder, files={"x": "y"}), "does not list files inside"),
    ],
)
def test_refused(bundle, damage, says):
    damage(bundle)
    with pytest.raises(manifest.BundleProblem, match=re.escape(says)):
        manifest.verify(bundle)


def test_many_bad_files_are_counted(bundle):
    for number in range(9):
        (bundle / f"wheels/{number}.whl").touch()
    with pytest.raises(manifest.BundleProblem, match="; and 4 more"):
        manifest.verify(bundle)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(manifest.BundleProblem, match="not empty and no bundle"):
        manifest.begin(tmp_path)
    with pytest.raises(manifest.BundleProblem, match="is no folder"):
        manifest.begin(tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_gathered_again(bundle):
    manifest.begin(bundle)
    (bundle / "wheels/three-3.0-py3-none-any.whl").touch()
    manifest.finish(bundle)
    assert len(manifest.verify(bundle)["files"]) == 4
