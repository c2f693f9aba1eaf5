# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings and judgements of real services: OpenIPMI's simulator through ipmitool, and Redfish over TLS."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import cooling, supplies
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.read import Ipmi, read
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.web import Bmc
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result, Runner

ROOT = Path(__file__).resolve().parents[3]
USER, PASSWORD = "monitor", "never-shown-7f3a"
C = "/redfish/v1/Chassis/1U"
PSU = f"{C}/PowerSubsystem/PowerSupplies"
GPUS = supplies.Load(5600.0, 400.0, 1800.0)


class Recording(Runner):
    """A runner that notes the command lines, which every user of a machine can see."""

    def __init__(self, root: str = "/", env: t.Mapping[str, str] | None = None) -> None:
        super().__init__(root, env)
        self.lines: list[list[str]] = []

    def run(self, argv: t.Sequence[str], limit: float = 3.0) -> Result:
        self.lines.append(list(argv))
        return super().run(argv, limit)


def through_redfish(service: t.Any, **changed: t.Any) -> dict[str, t.Any]:
    bmc = Bmc("127.0.0.1", service.port, USER, PASSWORD, True, str(service.certificate), 20.0)
    return read("redfish", replace(bmc, **changed), Ipmi(), Runner(), "none")


def through_ipmi(port: int, password: str = PASSWORD, limit: float = 20.0) -> dict[str, t.Any]:
    bmc = Bmc("127.0.0.1", user=USER, password=password, limit=limit)
    return read("ipmi", bmc, Ipmi(port, 3), Runner(), "none")


def states(reading: dict[str, t.Any], **policy: t.Any) -> dict[str, str]:
    made = [*supplies.check(reading, GPUS, supplies.Policy(**policy)), *cooling.check(reading)]
    return {finding.check: finding.state for finding in made}


HEALTHY = {
    "psu-ac-lost": "ok",
    "psu-failed": "ok",
    "psu-capacity": "ok",
    "inlet-hot": "ok",
    "fan-failed": "ok",
    "bmc-answers": "ok",
}


@pytest.mark.needs("openssl")
def test_redfish_healthy_then_without_input(redfish: t.Any) -> None:
    assert states(through_redfish(redfish)) == HEALTHY
    # One connection and no question twice; the password only after it has shown that it is a BMC.
    assert len(redfish.asked) == len({path for path, _login in redfish.asked})
    assert redfish.asked[0] == ("/redfish/v1", False)
    redfish.tree[f"{PSU}/2"]["LineInputStatus"] = "LossOfInput"
    assert states(through_redfish(redfish)) == {**HEALTHY, "psu-ac-lost": "warn"}
    for index in "1345":
        redfish.tree[f"{PSU}/{index}"]["Status"] = {"State": "Enabled", "Health": "Critical"}
    redfish.tree[f"{C}/ThermalSubsystem/Metrics"]["TemperatureSummaryCelsius"]["Intake"]["Reading"] = 41
    found = states(through_redfish(redfish))
    assert found == {
        **HEALTHY,
        "psu-ac-lost": "warn",
        "psu-failed": "warn",
        "psu-capacity": "fail",
        "inlet-hot": "warn",
    }


@pytest.mark.needs("openssl")
def test_a_wrong_password_locks_no_fleet(fleet: list[t.Any], tmp_path: Path) -> None:
    """Many BMCs at once that ask one directory: it sees two tries, whoever asks how often; the right one, all."""
    services = fleet
    folder = str(tmp_path / "state")

    def ask(service: t.Any, password: str) -> dict[str, t.Any]:
        # Each BMC has a name of its own here.
        name = f"127.0.0.{1 + services.index(service)}"
        bmc = Bmc(name, service.port, USER, password, False, "", 30.0)
        return read("redfish", bmc, Ipmi(), Runner(), "none", folder)

    def all_at_once(password: str) -> list[dict[str, t.Any]]:
        with ThreadPoolExecutor(len(services)) as pool:
            return list(pool.map(lambda service: ask(service, password), services))

    def tries() -> int:
        return sum(login for service in services for _path, login in service.asked)

    assert {reading["state"] for reading in all_at_once("wrong-a") + all_at_once("wrong-a")} == {"refused"}
    assert tries() == 2
    # Another password is another login, and once it was taken nobody waits.
    assert {reading["state"] for reading in all_at_once(PASSWORD)} == {"ok"}
    services[0].tree["/redfish/v1/Chassis"] = 401
    before = tries()
    assert [ask(services[0], PASSWORD)["state"] for _one in range(3)] == ["refused"] * 3
    assert tries() == before + 1
    assert ask(services[1], PASSWORD)["state"] == "ok"
    kept = (tmp_path / "state/bmc-logins.json").read_text()
    assert (tmp_path / "state/bmc-logins.json").stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in kept
    assert "wrong-a" not in kept


HTML = b"<!DOCTYPE html><html><title>Login</title></html>"
#: What is changed of the service, and of the question; the state of the reading, its words, requests with a login.
TROUBLE: dict[str, tuple[dict[str, t.Any], dict[str, t.Any], str, str, int | None]] = {
    "a wrong password is tried once": ({}, {"password": "wrong"}, "refused", "tried once", 1),
    "a certificate that nobody trusts": ({}, {"ca_file": ""}, "untrusted", "self", 0),
    "a certificate of another name": ({}, {"host": "localhost"}, "untrusted", "localhost", 0),
    "no file of authorities": ({}, {"ca_file": "/nowhere.pem"}, "untrusted", "/nowhere.pem", 0),
    "without verification": ({}, {"ca_file": "", "verify": False}, "ok", "", None),
    "HTML": ({"/redfish/v1": HTML}, {}, "malformed", "no JSON, it begins with '<!DOCTYPE html>", 0),
    "HTML of all but the root": ({"/redfish/v1/Chassis": HTML}, {}, "malformed", "/redfish/v1/Chassis is no JSON", 1),
    "a list": ({"/redfish/v1": b"[]"}, {}, "malformed", "no JSON object", 0),
    "nested without end": ({"/redfish/v1": b"[" * 100000}, {}, "malformed", "no JSON", 0),
    "too much": ({"/redfish/v1": b" " * (5 << 20)}, {}, "malformed", "more than 4 MiB", 0),
    "may not read": ({"/redfish/v1/Chassis": 403}, {}, "malformed", "may not read", 1),
    "server error": ({"/redfish/v1": 500}, {}, "malformed", "status 500", 0),
    "no such host": ({}, {"host": "bmc.invalid"}, "silent", "no connection", 0),
    "nobody listens": ({}, {"port": 1}, "silent", "refused", 0),
}


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("name", TROUBLE)
def test_a_bmc_that_answers_wrongly(redfish: t.Any, name: str) -> None:
    changes, options, state, words, logins = TROUBLE[name]
    redfish.tree.update(changes)
    reading = through_redfish(redfish, **options)
    assert (reading["state"], words in reading["error"]) == (state, True), reading["error"]
    assert logins in (None, sum(login for _path, login in redfish.asked))
    assert PASSWORD not in json.dumps(reading)
    if state != "ok":
        assert states(reading) == {"bmc-answers": "unknown"}
        assert {finding.policy for finding in cooling.check(reading)} == {"report"}


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(("delay", "drip"), [(5.0, False), (0.0, True)], ids=["silent", "a byte now and then"])
def test_a_bmc_that_is_slow(redfish: t.Any, delay: float, drip: bool) -> None:
    redfish.delay, redfish.drip = delay, drip
    started = time.monotonic()
    reading = through_redfish(redfish, limit=0.7)
    assert time.monotonic() - started < 1.5
    assert reading["state"] == "silent"
    assert "within" in reading["error"]


@pytest.mark.needs("openssl")
def test_one_part_that_is_refused_to_this_user_leaves_the_others(redfish: t.Any) -> None:
    redfish.tree[f"{PSU}/3"] = 403
    reading = through_redfish(redfish)
    assert [one["name"] for one in reading["supplies"]] == ["PSU1", "PSU2", "PSU4", "PSU5", "PSU6", "3"]
    unread = {"bmc-answers": "warn", "psu-ac-lost": "unknown", "psu-failed": "unknown", "psu-capacity": "unknown"}
    assert states(reading) == {**HEALTHY, **unread}


def test_a_port_that_speaks_no_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            with contextlib.suppress(OSError):
                client = server.accept()[0]
                client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 10)
                client.recv(1000)
                client.close()

        threading.Thread(target=talk, daemon=True).start()
        reading = read("redfish", Bmc("127.0.0.1", server.getsockname()[1], "u", "p"), Ipmi(), Runner(), "none")
    assert (reading["state"], "TLS" in reading["error"]) == ("malformed", True), reading["error"]


@pytest.mark.needs("ipmitool", "ipmi_sim")
def test_ipmi_healthy_then_without_input(ipmi: t.Any) -> None:
    reading = through_ipmi(ipmi.port)
    # IPMI tells no rating, and the simulator no event of now.
    healthy = {**HEALTHY, "psu-redundancy": "ok", "psu-events": "ok"}
    assert states(reading) == {**healthy, "psu-capacity": "unknown"}
    assert states(reading, supply_w=3000.0) == healthy
    assert reading["consumed_w"] == 7200.0
    ipmi.tell(
        "sensor_set_bit 0x20 0 50 1 1 1",
        "sensor_set_bit 0x20 0 50 3 1 1",
        "sensor_set_bit_clr_rest 0x20 0 64 1 1 1",
        "sensor_set_value 0x20 0 1 43 1",
        "sensor_set_value 0x20 0 18 5 1",
    )
    reading = through_ipmi(ipmi.port)
    lost = [one for one in reading["supplies"] if one["input_lost"]]
    assert [(one["name"], one["failed"]) for one in lost] == [("PSU2", None)]
    bad = {"psu-ac-lost": "warn", "psu-redundancy": "warn", "inlet-hot": "fail", "fan-failed": "warn"}
    assert states(reading, supply_w=3000.0) == {**healthy, **bad}
    # The log has what happened, before the simulator knew the time; and it is still there afterwards.
    assert [(one["sensor"], one["event"]) for one in reading["events"]][-1] == ("PS Redundancy", "Redundancy Lost")
    assert len(through_ipmi(ipmi.port)["events"]) == len(reading["events"])


@pytest.mark.needs("ipmitool", "ipmi_sim")
def test_a_password_is_tried_once_and_on_no_command_line(ipmi: t.Any) -> None:
    with relay(ipmi.port) as (port, kinds):
        recording = Recording()
        bmc = Bmc("127.0.0.1", user=USER, password="wrong-shown-1", limit=20.0)
        # The runner with the password in its environment is made of the one that is handed in.
        made: list[Recording] = []
        patched = pytest.MonkeyPatch()
        with patched.context() as patch:
            patch.setattr(
                "ansible_collections.gpufleet.pytorch.plugins.module_utils._power.read.Runner",
                lambda root, env: made.append(Recording(root, env)) or made[-1],
            )
            reading = read("ipmi", bmc, Ipmi(port, 3), recording, "none")
    assert reading["state"] == "refused"
    # RMCP+ open session and RAKP 1 (IPMI 2.0, table 13-16): one of each.
    assert [kinds.count(kind) for kind in (0x10, 0x12)] == [1, 1], kinds
    assert len(made[0].lines) == 1
    assert not any("wrong-shown-1" in word for line in made[0].lines for word in line)
    assert "wrong-shown-1" not in json.dumps(reading)


@contextlib.contextmanager
def relay(port: int) -> t.Iterator[tuple[int, list[int]]]:
    """A relay to a BMC on this machine, and the kinds of payload that were sent to it in RMCP+ packets."""
    kinds: list[int] = []
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as front,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back,
    ):
        front.bind(("127.0.0.1", 0))
        back.connect(("127.0.0.1", port))
        client: list[t.Any] = []

        def forth() -> None:
            with contextlib.suppress(OSError):
                while True:
                    data, sender = front.recvfrom(4096)
                    client[:] = [sender]
                    if len(data) > 5 and data[4] == 6:
                        kinds.append(data[5] & 0x3F)
                    back.send(data)

        def home() -> None:
            with contextlib.suppress(OSError):
                while True:
                    front.sendto(back.recv(4096), client[0])

        for work in (forth, home):
            threading.Thread(target=work, daemon=True).start()
        yield front.getsockname()[1], kinds


@pytest.mark.needs("ipmitool")
def test_an_ipmi_bmc_that_is_silent() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind(("127.0.0.1", 0))
        started = time.monotonic()
        reading = through_ipmi(mute.getsockname()[1], limit=1.0)
    assert time.monotonic() - started < 3
    assert reading["state"] == "silent"


@pytest.mark.parametrize(
    ("virtualization", "files", "state", "words"),
    [
        ("kvm", ["/dev/ipmi0"], "none", "virtual machine"),
        ("none", [], "none", "no BMC is known of"),
        ("none", ["/sys/firmware/dmi/entries/38-0/raw"], "missing", "modprobe"),
        ("none", ["/dev/ipmi0"], "missing", "ipmitool is not installed"),
    ],
)
def test_the_machines_own(tmp_path: Path, virtualization: str, files: list[str], state: str, words: str) -> None:
    for name in files:
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True)
        path.write_text("")
    reading = read("redfish", Bmc(""), Ipmi(), Runner(str(tmp_path)), virtualization)
    assert (reading["state"], words in reading["error"]) == (state, True), reading["error"]


PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: gpufleet.pytorch.power_cooling
    - ansible.builtin.copy:
        content: "{{ power_cooling_result | to_json }}"
        dest: "{{ result_file }}"
        mode: "0600"
      delegate_to: localhost
"""


@pytest.mark.needs("openssl")
def test_the_role_asks_from_the_controller_and_shows_no_password(redfish: t.Any, tmp_path: Path) -> None:
    """The host itself cannot even be reached: all is read from here."""
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    gpu = {"state": "ok", "power": {"limit_w": 700.0, "draw_w": 70.0}}
    variables = {
        "ansible_python_interpreter": sys.executable,
        # What is not there is not set either.
        "gpufleet_plan": {"accelerator": "cpu"},
        "power_cooling_bmc_host": "127.0.0.1",
        "power_cooling_bmc_port": redfish.port,
        "power_cooling_bmc_user": USER,
        "power_cooling_bmc_password": PASSWORD,
        "power_cooling_ca_file": str(redfish.certificate),
        "power_cooling_base_load_w": 1800,
        "gpufleet_observed": {
            "host": {"virtualization": "none"},
            "gpus": [gpu] * 8,
            "pci": [{"role": "gpu"}] * 8,
            "errors": {},
        },
        "result_file": str(tmp_path / "result.json"),
    }
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    (tmp_path / "vars.json").write_text(json.dumps(variables))
    command = [
        "ansible-playbook",
        "-vvv",
        "--inventory",
        "gpu01.invalid,",
        "--extra-vars",
        f"@{tmp_path / 'vars.json'}",
    ]
    done = subprocess.run(
        [*command, str(tmp_path / "play.yml")], cwd=ROOT, capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert {one["check"]: one["state"] for one in result["findings"]} == HEALTHY
