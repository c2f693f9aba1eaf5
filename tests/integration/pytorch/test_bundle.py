# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's part of a bundle: it says which wheels it lacks, takes them from the store, and asks no index."""

from __future__ import annotations

import hashlib
import shutil


def lines(wheels):
    found = []
    for path in sorted(wheels.iterdir()):
        name, version = path.name.split("-")[:2]
        found.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
    return found


def test_wheels_are_asked_for_brought_and_installed(host, wheels):
    # An address that answers nobody: it is not asked.
    given = {"bundle": "/a/bundle", "lock": lines(wheels), "index_url": "http://127.0.0.1:1/simple", "wait": 0}
    predicted = host.run(_ansible_check_mode=True, **given)
    assert predicted["changed"] and predicted["packages"]["sympy"] == "1.14.0", predicted
    assert not host.venv.exists() and not host.store.exists()
    answer = host.run(**given)
    assert (answer["wheels_needed"], answer["store"]) == (lines(wheels), str(host.store))
    assert not host.venv.exists()
    for path in wheels.iterdir():
        shutil.copy(path, host.store)
    assert host.run(**given)["wheels_needed"] == []
    done = host.run(brought=True, **given)
    assert done["changed"] and host.installed()["torch"] == "2.9.0+cpu", done
    again = host.run(**given)
    assert again["changed"] is False and "wheels_needed" not in again


def test_a_wheel_of_another_content_is_still_needed(host, wheels):
    wanted = lines(wheels)
    host.store.mkdir()
    for path in wheels.iterdir():
        (host.store / path.name).write_bytes(path.read_bytes() + b"damaged")
    assert host.run(bundle="/a/bundle", lock=wanted)["wheels_needed"] == wanted


def test_without_a_lock_it_says_what_is_needed(host):
    assert "gpufleet_bundle needs a lock" in host.fails(bundle="/a/bundle")
