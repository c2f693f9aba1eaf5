# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup's documentation names the options that it takes."""

from __future__ import annotations

import yaml

from ansible_collections.gpufleet.pytorch.plugins.lookup import compat
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer, observed, request


def test_every_option_is_documented_and_every_documented_one_is_taken():
    documented = yaml.safe_load(compat.DOCUMENTATION)["options"]
    assert set(documented) == {"_terms", *request.OPTIONS, *compat._OWN}
    assert set(compat._WISHES) <= set(request.OPTIONS) >= set(observed.VARIABLES.values())


def test_documented_defaults_and_choices_are_those_of_the_code():
    documented = yaml.safe_load(compat.DOCUMENTATION)["options"]
    plain = request.request("latest", {})
    for option in request.OPTIONS:
        if "default" in documented[option] and documented[option]["default"] != "auto":
            assert getattr(plain, option) == documented[option]["default"], option
        for choice in documented[option].get("choices", ()):
            assert request.request("latest", {option: choice}), (option, choice)


def test_every_part_of_a_plan_and_of_a_conflict_is_documented():
    documented = set(yaml.safe_load(compat.RETURN)["_raw"]["contains"])
    plan = answer.answer("2.8.0", {"gpus": ["NVIDIA L4"]})
    conflict = answer.answer("2.8.0", {})
    assert set(plan) | set(conflict) == documented
