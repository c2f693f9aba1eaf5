# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate on this machine, for real, with the real torch: what it answers to everything that can go wrong."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from ansible_collections.gpufleet.pytorch.tests.integration.gate.conftest import ROOT

pytestmark = pytest.mark.container  # namespaces of our own need what containers need

GATE = "/usr/local/bin/gpufleet-gate"
EXPECTED = "/etc/gpufleet/expected.json"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture(autouse=True)
def as_recorded(host):
    """Each test finds the record as it was made, and no acknowledgement."""
    record = host.ok("cat", EXPECTED)
    yield
    write(host, EXPECTED, record)
    host.ok("chmod", "0644", EXPECTED)
    host.ok("rm", "-f", "/etc/gpufleet/acknowledged.json")


def test_a_fresh_look_makes_the_verdict_that_everybody_reads(host):
    code, verdict = host.gate()
    assert (code, verdict["state"]) == (2, "unknown"), "nobody has looked yet"
    code, verdict = host.gate("--fresh")
    assert (code, verdict["ok"], verdict["state"]) == (0, True, "ready"), verdict
    assert ("drift", "ok") in verdict["found"] and ("accelerator-present", "not_applicable") in verdict["found"]
    assert host.gate()[1] == verdict
    assert host.ok("stat", "-c", "%U %a", "/run/gpufleet/verdict.json").split() == ["root", "644"]
    assert {"schema", "judged_at", "boot_id", "collection", "valid_for"} <= set(verdict)
    assert host.run(GATE).stdout == "ready\n"


@pytest.mark.parametrize("option", ["--quick", "--only=x:y", "fresh"])
def test_what_it_does_not_know_is_no_answer(host, option):
    done = host.run(GATE, option)
    assert done.returncode in (2, 3)
    assert done.stdout == ""


def test_a_plain_user_reads_and_cannot_loosen(host):
    place = "/run/hostile"
    host.ok("mkdir", place)
    for name in ("json", "os", "installed", "sitecustomize", "usercustomize"):
        write(host, f"{place}/{name}.py", "import posix\nposix._exit(0)\n")
    expected = host.ok("cat", EXPECTED)
    host.ok("sed", "-i", 's/"python_version": "3/"python_version": "4/', EXPECTED)
    assert host.gate("--fresh")[0] == 1
    names = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "HOME", "XDG_STATE_HOME", "LD_LIBRARY_PATH")
    hostile = {**dict.fromkeys(names, place), "PYTHONSTARTUP": f"{place}/os.py"}
    # His own look cannot even reach the environment, which is below /root: unknown.
    for options, code in (((), 1), (("--fresh",), 2), (("--json",), 1)):
        done = host.run(*NOBODY, "sh", "-c", f"cd {place} && exec {GATE} {' '.join(options)}", **hostile)
        assert done.returncode == code, (options, done.stdout, done.stderr)
    assert host.run(*NOBODY, GATE, "--prove").returncode == 2
    assert host.run(*NOBODY, "sh", "-c", "echo >/run/gpufleet/verdict.json").returncode != 0
    write(host, EXPECTED, expected)
    assert host.gate("--fresh")[0] == 0
    assert host.run(*NOBODY, GATE).returncode == 0


def write(host, path, text):
    subprocess.run(host.argv("sh", "-c", 'cat >"$1"', "sh", path), input=text, text=True, check=True)


def test_drift_looks_through_the_gate_and_without_it_through_the_module(host):
    code, output, verdict = host.play("drift")
    assert code == 0, output
    assert "accelerator-present" in {item["check"] for item in verdict["findings"]}
    code, output, verdict = host.play("drift", gate_directory="/run/elsewhere")
    assert code != 0, "never proved there"
    assert [item["check"] for item in verdict["findings"]] == ["never-proved"]


def test_drift_takes_the_verdict_of_a_moment_ago_where_that_is_wanted(host):
    assert host.gate("--fresh")[0] == 0
    stood = host.ok("cat", "/run/gpufleet/verdict.json")
    code, output, verdict = host.play("drift", drift_within="600")
    assert (code, host.ok("cat", "/run/gpufleet/verdict.json")) == (0, stood), output
    assert "verdict-standing" in {item["check"] for item in verdict["findings"]}
    assert verdict["state"] == "ready"
    host.ok("touch", EXPECTED)
    code, output, verdict = host.play("drift", drift_within=600)
    assert code == 0 and host.ok("cat", "/run/gpufleet/verdict.json") != stood, output
    assert "verdict-standing" not in {item["check"] for item in verdict["findings"]}
    code, output, verdict = host.play("drift", drift_within="soon")
    assert code != 0 and "drift_within needs a number of seconds" in output


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ('s/"schema": 1,/"schema": 2,/', "expected-readable"),
        ("20q", "expected-readable"),
        ('s/"kernel": "[^"]*"/"kernel": "1.2.3"/', "expected-edited"),
    ],
)
def test_a_record_that_is_damaged_newer_or_edited_is_unknown(host, change, check):
    text = host.ok("cat", EXPECTED)
    host.ok("sed", "-i", change, EXPECTED)
    code, verdict = host.gate("--fresh")
    assert code == 2 and (check, "unknown") in verdict["found"], verdict
    write(host, EXPECTED, text)
    assert host.gate("--fresh")[0] == 0


@pytest.mark.parametrize("mode", ["0666", "0664"])
def test_root_does_not_believe_what_others_can_write(host, mode):
    host.ok("chmod", mode, EXPECTED)
    code, verdict = host.gate("--fresh")
    assert code == 2 and "can be changed by others" in verdict["found"]["expected-readable", "unknown"]["found"]
    host.ok("chmod", "0644", EXPECTED)


def test_a_reviewed_change_is_taken_over_with_a_name_and_never_in_silence(host):
    before = host.ok("cat", EXPECTED)
    edited = before.replace('"glibc": "', '"glibc": "9.')
    write(host, EXPECTED, edited)
    ids = ["expected-edited/host", "drift-glibc/host"]
    code, output, _verdict = host.play("drift", drift_accept=ids)
    assert code != 0 and "drift_accept_by" in output
    named = {"drift_accept": ids, "drift_accept_by": "Jo", "drift_accept_reason": "reviewed"}
    code, output, _verdict = host.play("drift", "--check", "--diff", **named)
    assert '-            "glibc": "9.' in output or '"glibc": "9.' in output, output
    assert host.ok("cat", EXPECTED) == edited, "check mode changes nothing"
    code, output, _verdict = host.play("drift", **named)
    assert code == 0, output
    after = json.loads(host.ok("cat", EXPECTED))
    assert [(entry["id"], entry["by"]) for entry in after["accepted"]] == [(name, "Jo") for name in ids]
    assert host.ok("cat", EXPECTED + ".previous") == edited
    code, output, _verdict = host.play("drift", **named)
    assert code == 0 and "changed=0" in output, "a second time changes nothing"
    assert host.gate("--fresh")[0] == 0


def test_a_full_disk_leaves_the_record_as_it_was_and_says_so(host):
    host.ok("mkdir", "-p", "/run/small")
    host.ok("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", "/run/small")
    host.ok("cp", EXPECTED, "/run/small/")
    host.ok("sed", "-i", 's/"glibc": "/"glibc": "9./', "/run/small/expected.json")
    host.run("dd", "if=/dev/zero", "of=/run/small/fill", "bs=1k")
    before = host.ok("cat", "/run/small/expected.json")
    code, output, _verdict = host.play(
        "drift",
        gate_directory="/run/small",
        drift_accept=["expected-edited/host"],
        drift_accept_by="Jo",
        drift_accept_reason="why",
    )
    assert code != 0
    assert "No space left" in output and "what was recorded before stays" in output, output
    assert host.ok("cat", "/run/small/expected.json") == before
    assert host.ok("ls", "-A", "/run/small").split() == ["expected.json", "fill"]
    host.ok("umount", "/run/small")


def test_twenty_starts_at_once_all_answer(host):
    began = time.monotonic()
    starts = [
        subprocess.Popen(host.argv(GATE, "--fresh"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _one in range(20)
    ]
    said = [one.communicate(timeout=60) for one in starts]
    assert [one.returncode for one in starts] == [0] * 20, said
    assert time.monotonic() - began < 40


@pytest.fixture
def hidden(host, venv):
    """Takes shared objects of the environment away, and puts all back."""
    moved = []

    def take(name):
        (path,) = venv.glob(f"lib/python3*/site-packages/torch/lib/{name}")
        path.rename(venv / name)
        moved.append((venv / name, path))

    yield take, lambda: [moved.remove(pair) or pair[0].rename(pair[1]) for pair in list(moved)]
    for away, path in moved:
        away.rename(path)
    host.gate("--fresh")


def test_a_finding_is_acknowledged_until_it_says_more(host, hidden):
    take, _put_back = hidden
    take("libshm.so")
    code, verdict = host.gate("--fresh")
    finding = verdict["found"]["environment-whole", "fail"]
    assert code == 1 and "libshm.so" in finding["found"]
    named = {"drift_accept_by": "Jo", "drift_accept_reason": "the vendor's test"}
    until = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * 86400))
    code, output, verdict = host.play(
        "drift", drift_acknowledge=[finding["id"]], drift_acknowledge_until=until, **named
    )
    assert code == 0, output
    assert "1 acknowledged: environment-whole" in output
    code, verdict = host.gate("--fresh")
    assert code == 0 and ("environment-whole", "fail") in verdict["found"], "it is still said"
    take("libtorch_python.so")
    code, verdict = host.gate("--fresh")
    assert code == 1, "another thing is missing"
    assert verdict["found"]["acknowledgements", "warn"]["evidence"]["other"] == [finding["id"]]
    host.ok("chmod", "0666", "/etc/gpufleet/acknowledged.json")
    assert "can be changed by others" in host.gate("--fresh")[1]["found"]["acknowledgements", "warn"]["found"]
    host.ok("rm", "/etc/gpufleet/acknowledged.json")


def test_a_proof_that_fails_stands_until_one_succeeds(host, hidden):
    take, put_back = hidden
    take("libtorch_cpu.so")
    code, verdict = host.gate("--prove")
    assert code == 1, verdict
    put_back()
    code, verdict = host.gate("--fresh")
    assert code == 1, "the files are whole again, and nothing has computed since"
    assert not [key for key in verdict["found"] if key[0].startswith("environment-whole")]
    code, verdict = host.gate("--prove")
    assert code == 0, verdict
    assert ("recorded", "ok") in verdict["found"]
    assert host.gate("--fresh")[0] == 0


def test_a_kernel_that_was_not_proved_is_proved_by_the_gate_and_then_recorded(host):
    expected = json.loads(host.ok("cat", EXPECTED))
    expected["baseline"]["host"]["kernel"] = "1.2.3"
    write(host, "/run/old.json", json.dumps(expected))
    script = (
        "import json,sys; sys.path.insert(0, '/usr/local/lib/gpufleet/gpufleet-gate');"
        "from ansible_collections.gpufleet.pytorch.plugins.module_utils import _state;"
        "_state.write_expected('/etc/gpufleet', json.load(open('/run/old.json')))"
    )
    host.ok("/usr/bin/python3", "-I", "-c", script)
    code, verdict = host.gate("--fresh")
    assert code == 0 and {("drift-kernel", "warn"), ("proof-due", "warn")} <= set(verdict["found"])
    code, verdict = host.gate("--prove")
    assert code == 0 and ("proof-due", "warn") not in verdict["found"], verdict
    assert ("drift-kernel", "warn") not in host.gate("--fresh")[1]["found"]
    after = json.loads(host.ok("cat", EXPECTED))
    assert after["baseline"]["rates"] and after["baseline"]["host"]["kernel"] != "1.2.3"


def test_the_first_start_of_an_image_proves_what_it_was_made_for(host):
    """The role leaves planned.json in an image; until the proof a host of it is not ready, and then it has a record."""
    expected = json.loads(host.ok("cat", EXPECTED))
    python = expected["baseline"]["environment"]["python"]
    planned = {
        "schema": 1,
        "plan": expected["plan"],
        "policy": {**expected["policy"], "gpus_expected": 8},
        "python": python,
    }
    host.ok("mv", EXPECTED, "/run/proved.json")
    try:
        write(host, "/etc/gpufleet/planned.json", json.dumps(planned))
        assert host.gate("--fresh")[0] == 2 and host.gate()[0] == 2
        # GPUs that should be there and are not keep it from a first record, whatever computes.
        code, verdict = host.gate("--prove")
        assert code == 1 and ("accelerator-present", "fail") in verdict["found"], verdict
        assert host.run("test", "-e", EXPECTED).returncode == 1
        planned["policy"]["gpus_expected"] = None
        write(host, "/etc/gpufleet/planned.json", json.dumps(planned))
        code, verdict = host.gate("--prove")
        assert code == 0 and ("recorded", "ok") in verdict["found"], verdict
        assert host.gate("--fresh")[0] == 0
        after = json.loads(host.ok("cat", EXPECTED))
        assert after["plan"] == expected["plan"] and after["baseline"]["rates"]
        host.ok("chmod", "0666", "/etc/gpufleet/planned.json")
        host.ok("rm", EXPECTED)
        code, verdict = host.gate("--prove")
        assert code == 2 and "can be changed by others" in verdict["found"]["proof-known", "unknown"]["found"]
    finally:
        host.ok("rm", "-f", "/etc/gpufleet/planned.json")
        host.ok("mv", "/run/proved.json", EXPECTED)


def test_what_the_runbook_says_takes_all_of_it_off_again(host):
    """Last, as it leaves no gate. What is not the namespace's own is hidden first."""
    text = (ROOT / "docs" / "operations.md").read_text().split("## Taking it off a host again")[1].split("```")[1]
    units = ("gpufleet-gate.timer", "gpufleet-gate.service.d/metrics.conf", "training.service.d/gpufleet-gate.conf")
    stays = ["/etc/gpufleet", "/etc/gpufleet/driver.json", "/etc/systemd/system/training.service.d/mine.conf"]
    for path in (*(f"/etc/systemd/system/{unit}" for unit in units), "/etc/nhc/scripts/gpufleet.nhc", *stays[1:]):
        host.ok("mkdir", "-p", path.rpartition("/")[0])
        write(host, path, "")
    assert host.gate("--fresh")[0] == 0
    hidden = "mount -t tmpfs tmpfs /opt && mount -t tmpfs tmpfs /var || exit 9\n"
    host.ok("unshare", "-m", "sh", "-c", hidden + text)
    # What tests of containers make is the machine's own.
    there = host.ok("find", "/etc", "/usr/local", "/run", "-xdev", "-path", "*gpufleet*", "-o", "-name", "mine.conf")
    others = ("/run/layers/", "/etc/containers/")
    assert sorted(path for path in there.split() if not path.startswith(others)) == stays
