# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long it takes to fold the verdicts of 10,000 hosts into the picture of a fleet, as report.yml does, page and all.

    ./run python tests/bench/report.py [HOSTS]

Each host has a file of 60 findings, the size of an 8-GPU host's; one in a hundred has another driver. Prints CPU
seconds and the most memory beside their budgets.
"""

from __future__ import annotations

import json
import pathlib
import resource
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(hosts: int) -> int:
    """Print the two figures."""
    sys.path.insert(0, str(ROOT / "collections"))
    from ansible_collections.gpufleet.pytorch.plugins.action import fleet_report
    from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
    from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import fleet, html

    subject = _finding.Subject
    checks = [_finding.Finding(f"check-{n}", "ok", subject("gpu", f"GPU-{n:032x}"), found="f" * 60) for n in range(60)]
    made = {**_finding.verdict(checks), "judged_at": _finding.now()}
    names = [f"gpu{number:05}" for number in range(hosts)]
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names):
            driver = "580.95.05" if number % 100 else "570.195.03"
            text = json.dumps({**made, "identity": {"gpus": "8 x NVIDIA H100 80GB HBM3", "driver": driver}})
            pathlib.Path(folder, f"{name}.json").write_text(text)
        start = time.process_time()
        content = fleet_report.fold({**dict.fromkeys(names), **dict(fleet.read_inbox(folder, names))}, 86400)
        page = html.render(content, _finding.now())
        took = time.process_time() - start
    odd = sum(item["check"] == "fleet-odd-driver" for host in content["hosts"].values() for item in host["findings"])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{hosts} verdicts of {len(text)} bytes, {odd} odd ones out, a page of {len(page) // 1024} KiB")
    print(f"{took:.2f} s of CPU; budget 5 s")
    print(f"{most} MiB; budget 500 MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
