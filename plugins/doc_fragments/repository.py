# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option of every module that takes packages from NVIDIA's repository, said once."""

from __future__ import annotations


class ModuleDocFragment:
    """Where a mirror of the repository is, and whose key signs it."""

    DOCUMENTATION = r"""
options:
  repository:
    description: What differs from the plan where NVIDIA's repository is a mirror.
    type: dict
    default: {}
    suboptions:
      url:
        description: Address of the repository, http, https or file.
        type: str
      key_url:
        description: Address of its key. Not given, it lies in the mirror under its usual name.
        type: str
      fingerprint:
        description: Fingerprint of the only key that may sign it.
        type: str
"""
