# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attributes of our modules, said once."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of check mode and diff mode; a module states its own support."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
  diff_mode:
    description: Returns in diff mode what has changed, or in check mode what would.
"""
