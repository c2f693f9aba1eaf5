# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no file of ours may say: where packages come from is pip's and apt's setting, and nobody has our paths."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import urllib.parse
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def files() -> list[Path]:
    """The files that a commit holds, or would hold."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git clone: only git knows which files are the project's")
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    return [path for path in (ROOT / name for name in names if name) if path.is_file()]


def index_hosts() -> set[str]:
    """The hosts of the public package index and of those that pip is set to here."""
    spec = importlib.util.spec_from_file_location("fetch_pip", ROOT / "requirements" / "fetch_pip.py")
    assert spec and spec.loader
    fetch_pip = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fetch_pip)
    config = fetch_pip.settings(os.environ, Path.home())
    urls = [fetch_pip.public_index(), config.get("index-url", ""), *config.get("extra-index-url", "").split()]
    return {host for host in (urllib.parse.urlsplit(url).hostname for url in urls) if host}


def test_no_file_names_a_package_index_or_a_path_of_one_machine() -> None:
    words = sorted(index_hosts()) + [os.sep.join(["", "work", ""])]
    pattern = re.compile("|".join(re.escape(word) for word in words).encode())
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.decode(errors='replace').strip()}"
        for path in files()
        for number, line in enumerate(path.read_bytes().splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_roles_and_playbooks_use_no_foreign_collection() -> None:
    """Users have ansible-core alone; the test environment would find many collections more."""
    found = []
    for path in sorted([*ROOT.glob("roles/*/[th]a*/**/*.yml"), *ROOT.glob("playbooks/*.yml")]):
        for name in re.findall(r"^[ -]*([a-z_]+\.[a-z_]+)\.[a-z_]+:", path.read_text(encoding="utf-8"), re.MULTILINE):
            if name not in ("ansible.builtin", "gpufleet.pytorch"):
                found.append(f"{path.relative_to(ROOT)}: {name}")
    assert found == []
    assert not yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["dependencies"]


def test_links_between_pages_lead_somewhere() -> None:
    found = []
    for page in (path for path in files() if path.suffix == ".md"):
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not urllib.parse.urlsplit(link).scheme and not (page.parent / link).exists():
                found.append(f"{page.relative_to(ROOT)}: {link}")
    assert found == []
