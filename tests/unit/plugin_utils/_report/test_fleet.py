# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts' verdicts: age, damage, the odd one out, what they have in common, and the page."""

from __future__ import annotations

import json
import os
import resource
import time

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject, fold, verdict
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import fleet, html

NOW = 1_790_000_000.0
FINE = Finding("drift", "ok", found="as proved")
BAD = Finding("psu-ac-lost", "fail", found="supply 2 without AC", action="ask facility")
TOLD = Finding("clock-limit", "warn", found="1,200 MHz", policy="report")


def stamp(age: float = 60, at: float = NOW) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at - age))


def of(*findings: Finding, age: float = 60, **more: object) -> dict[str, object]:
    return {**verdict(findings), "judged_at": stamp(age), **more}


@pytest.mark.parametrize(
    ("given", "state", "checks"),
    [
        (of(FINE), "ready", []),
        (of(FINE, TOLD), "ready", ["clock-limit"]),
        (of(FINE, BAD), "not_ready", ["psu-ac-lost"]),
        (of(FINE, age=90_000), "unknown", ["host-heard"]),
        (of(FINE, age=-3600), "unknown", ["host-heard"]),
        (of(FINE, age=-60), "ready", []),
        (of(BAD, age=90_000), "not_ready", ["host-heard", "psu-ac-lost"]),
        ({**of(FINE), "state": "unknown"}, "unknown", ["host-heard"]),
        (None, "unknown", ["host-heard"]),
        ("host.json: no JSON", "unknown", ["host-heard"]),
    ],
)
def test_own_state(given, state, checks):
    host = fleet.host_of(given, "host.json") if isinstance(given, dict) else given
    found = fleet.judge({"a": host}, NOW, 86400)["a"]
    assert fold(found) == state
    assert sorted(item.check for item in found if item.state != "ok") == checks


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        [],
        {"findings": [], "state": "ready"},
        {"findings": None, "state": "ready", "judged_at": stamp()},
        {"findings": [{"state": "fail"}], "state": "ready", "judged_at": stamp()},
        {**of(FINE), "judged_at": "yesterday"},
        {**of(FINE, BAD), "state": "ready"},
        {**of(), "state": "ready"},
        {**of(FINE), "identity": ["driver"]},
        {**of(FINE), "judged_at": "2026-12-01T06:00:00+01:00"},
        {**of(FINE), "findings": [FINE.to_dict(), {**BAD.to_dict(), "state": "failed"}]},
        {**of(FINE), "findings": [{**FINE.to_dict(), "policy": "never"}]},
        {**of(FINE), "findings": [FINE.to_dict(), None]},
        # Nothing that may block was judged, or what looks like one that is found anew is none.
        {**of(Finding("drift", "ok", policy="report")), "state": "ready"},
        {**of(FINE, Finding("fleet-odd-driver", "fail")), "state": "ready"},
    ],
)
def test_what_is_no_verdict_is_refused(damaged):
    with pytest.raises(ValueError, match=r"host\.json"):
        fleet.host_of(damaged, "host.json")


@pytest.mark.parametrize(
    ("drivers", "odd"),
    [
        (["580", "580", "580"], {}),
        (["580", "580", "570"], {"h2": "driver 570"}),
        (["580", "570"], {}),  # nobody knows which of two is odd
        (["580", "580", "570", "570"], {}),
        (["580", "580", "580", "570", "560"], {"h3": "driver 570", "h4": "driver 560"}),
        (["580", "580", None], {"h2": "driver unknown"}),
    ],
)
def test_odd_ones_out(drivers, odd):
    known = {
        f"h{number}": {"gpus": "8 x H100", **({"driver": driver} if driver else {})}
        for number, driver in enumerate(drivers)
    }
    assert {name: item.found for name, item in fleet.odd_ones_out(known)} == odd


def test_other_gpus_are_another_fleet():
    known = {f"h{number}": {"gpus": "8 x H100", "driver": "580"} for number in range(3)}
    known["t4"] = {"gpus": "1 x T4", "driver": "535"}
    assert list(fleet.odd_ones_out(known)) == []


@pytest.mark.parametrize(("bad", "said"), [(2, 0), (3, 1), (30, 1)])
def test_what_fails_on_many_hosts_is_said_once(bad, said):
    findings = {f"h{number}": [BAD if number < bad else FINE] for number in range(30)}
    assert len(fleet.in_common(findings)) == said


def test_inbox_leaves_other_files_alone(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(of(FINE)))
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").write_text("[" * 100_000)
    (tmp_path / "other.json").write_text("{")
    found = dict(fleet.read_inbox(str(tmp_path), ["a", "b", "c", "d"]))
    assert isinstance(found["a"], fleet.Host)
    assert all(isinstance(found[name], str) and f"{name}.json" in found[name] for name in "bc")
    assert sorted(found) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [("fifo", "no file"), ("folder", "no file"), ("link", "symbolic links"), ("swapped", "the verdict of 'b'"),
     ("huge", "more than"), ("text", "utf-8"), ("own", "")],
)  # fmt: skip
def test_inbox_takes_no_other_file_for_a_hosts_own(tmp_path, kind, says):
    path = tmp_path / "a.json"
    (tmp_path / "b.json").write_text(json.dumps(of(FINE, host="b")))
    if kind in ("fifo", "folder"):
        (os.mkfifo if kind == "fifo" else os.mkdir)(path)
    elif kind == "link":
        path.symlink_to("b.json")
    elif kind == "huge":
        path.write_bytes(b" " * (fleet.LARGEST + 1))
    else:
        texts = {"swapped": json.dumps(of(FINE, host="b")).encode(), "own": json.dumps(of(FINE, host="a")).encode()}
        path.write_bytes(texts.get(kind, b"\x80\x81"))
    ((name, found),) = fleet.read_inbox(str(tmp_path), ["a"])
    assert name == "a" and (says in found if says else isinstance(found, fleet.Host))


def test_newer_verdict_counts():
    old, new = fleet.host_of(of(BAD, age=100), "site"), fleet.host_of(of(FINE, age=50), "inbox")
    assert fleet.newest(old, new) == new == fleet.newest(new, old) == fleet.newest(None, new)


def test_page_escapes_what_hosts_say():
    evil = Finding(
        "x", "fail", Subject("gpu", "<b>"), found="<script>alert(1)</script>", expected="&", action="replace"
    )
    content = {"hosts": {"a<i>": {**verdict([evil]), "judged_at": stamp()}}, "fleet": {"findings": []}}
    page = html.render(content, stamp())
    assert "<script>" not in page
    assert "<b>" not in page
    assert "a<i>" not in page
    assert "&lt;script&gt;" in page
    long = Finding("x", "fail", found="\x1b[31m" + "y" * 1_000_000)
    page = html.render({"hosts": {"a": {**verdict([long]), "judged_at": stamp()}}}, stamp())
    assert len(page) < 10_000 and "\x1b" not in page


def test_ten_thousand_hosts_fit(tmp_path):
    """A tenth of them, at a tenth of the bound of 5 s; each verdict is as large as one of an 8-GPU host."""
    checks = [Finding(f"check-{n}", "ok", Subject("gpu", f"GPU-{n:032x}"), found="f" * 60) for n in range(60)]
    text = json.dumps({**of(*checks), "identity": {"gpus": "8 x H100", "driver": "580"}})
    names = [f"h{number}" for number in range(1000)]
    for name in names:
        (tmp_path / f"{name}.json").write_text(text)
    before = time.process_time()
    known = dict(fleet.read_inbox(str(tmp_path), names))
    assert {fold(items) for items in fleet.judge(known, NOW, 86400).values()} == {"ready"}
    seconds = time.process_time() - before
    if os.environ.get("GPUFLEET_BENCH"):
        print(
            f"{seconds:.2f} s, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB, {len(text)} bytes each"
        )
    assert seconds < 1.5  # twice and more what it takes, for a machine that others use
