# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the driver can be asked, and then what it says: the ``nvml`` and ``gpus`` parts of an Observation.

It is not asked where the kernel module is not loaded: starting NVML can load
the module (through nvidia-modprobe), and a look changes nothing.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import ask

Answer = t.Dict[str, t.Any]


def answer(state: str, *, source: str = "none", error: str = "") -> Answer:
    """An answer without GPUs. ``state`` is one of ok no_library no_driver mismatch error timeout."""
    return {"nvml": {"state": state, "source": source, "error": error}, "gpus": []}


#: Of a look that failed.
UNKNOWN = answer("error", error="not read")


def probe(
    runner: Runner,
    host: t.Mapping[str, t.Any],
    driver: t.Mapping[str, t.Any],
    more: t.Optional[t.Callable[[], ask.More]] = None,
) -> Answer:
    """What NVML says, or why it says nothing. ``more``: gives what is asked beside what is compared."""
    library = next((entry["path"] for entry in driver["libraries"] if entry["name"] == "libnvidia-ml.so.1"), None)
    if library is None:
        return answer("no_library", error="libnvidia-ml.so.1 is nowhere on the loader's path")
    if not driver["version"] and not host["dxg"]:
        return answer("no_driver", error="the kernel module nvidia is not loaded")
    # Half of the probe's code, of which a host without a driver needs nothing.
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import ask as asking

    return asking.ask(runner, runner.path(library), more() if more else None)
