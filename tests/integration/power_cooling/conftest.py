# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""BMCs that answer: OpenIPMI's simulator with sensors of a GPU server, and a Redfish service over TLS."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import socket
import ssl
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest

USER, PASSWORD = "monitor", "never-shown-7f3a"
LOGIN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
C = "/redfish/v1/Chassis/1U"
OK = {"State": "Enabled", "Health": "OK"}


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tree() -> dict[str, t.Any]:
    """Six supplies of 3,300 W, four fans, an inlet at 24 C."""

    def listed(path: str, names: t.Iterable[str]) -> dict[str, t.Any]:
        return {"Members": [{"@odata.id": f"{path}/{name}"} for name in names]}

    power, thermal = f"{C}/PowerSubsystem", f"{C}/ThermalSubsystem"
    made: dict[str, t.Any] = {
        "/redfish/v1": {"RedfishVersion": "1.18.0", "Chassis": {"@odata.id": "/redfish/v1/Chassis"}},
        "/redfish/v1/Chassis": listed("/redfish/v1/Chassis", ["1U"]),
        C: {"Id": "1U", "PowerSubsystem": {"@odata.id": power}, "ThermalSubsystem": {"@odata.id": thermal}},
        power: {"PowerSupplies": {"@odata.id": f"{power}/PowerSupplies"}},
        f"{power}/PowerSupplies": listed(f"{power}/PowerSupplies", "123456"),
        thermal: {"Fans": {"@odata.id": f"{thermal}/Fans"}, "ThermalMetrics": {"@odata.id": f"{thermal}/Metrics"}},
        f"{thermal}/Metrics": {"TemperatureSummaryCelsius": {"Intake": {"Reading": 24.0}}},
        f"{thermal}/Fans": listed(f"{thermal}/Fans", "1234"),
    }
    for index in "123456":
        made[f"{power}/PowerSupplies/{index}"] = {
            "Name": f"PSU{index}",
            "Status": OK,
            "LineInputStatus": "Normal",
            "PowerCapacityWatts": 3300,
        }
    for index in "1234":
        made[f"{thermal}/Fans/{index}"] = {"Name": f"Fan{index}", "Status": OK}
    return made


class Redfish:
    """A service on this machine. A test changes ``tree``; an int is answered as a status, bytes as they are."""

    def __init__(self, certificate: Path, address: str = "127.0.0.1") -> None:
        self.certificate = certificate
        self.tree = tree()
        self.asked: list[tuple[str, bool]] = []
        #: Seconds before each answer, and whether it then comes a byte at a time.
        self.delay, self.drip = 0.0, False
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                with contextlib.suppress(OSError):
                    service.answer(self)

            def log_message(self, *_arguments: t.Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_arguments: t.Any) -> None:
                """A client that goes away, as one does that does not trust us."""

        self._server = Server((address, 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = request.path.rstrip("/")
        login = request.headers.get("Authorization")
        self.asked.append((path, login is not None))
        time.sleep(self.delay)
        found: t.Any = self.tree.get(path, 404)
        if path != "/redfish/v1" and login != LOGIN:
            found = 401
        status = found if isinstance(found, int) else 200
        body = found if isinstance(found, bytes) else json.dumps({} if isinstance(found, int) else found).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        for piece in (body[i : i + 1] for i in range(len(body))) if self.drip else [body]:
            request.wfile.write(piece)
            request.wfile.flush()
            time.sleep(0.2 if self.drip else 0)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1, signed by itself: also the file of its authority."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    made = subprocess.run([*command, "-keyout", "-", "-out", "-"], capture_output=True, check=True)
    path.write_bytes(made.stdout)
    return path


@pytest.fixture
def redfish(certificate: Path) -> t.Iterator[Redfish]:
    service = Redfish(certificate)
    yield service
    service.close()


@pytest.fixture
def fleet(certificate: Path) -> t.Iterator[list[Redfish]]:
    """Four services, the BMCs of a fleet."""
    services = [Redfish(certificate, f"127.0.0.{index}") for index in range(1, 5)]
    yield services
    for service in services:
        service.close()


LAN = """name "gpunode"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "{user}" "{password}" user 10 none md2 md5 straight
console 127.0.0.1 {console}
"""
ALL, FOUR, NONE = "1" * 15, "0" * 11 + "1111", "0" * 15


class Sensors:
    """The simulator's commands for the sensors of a server (IPMI 2.0, chapter 43: full and compact records)."""

    def __init__(self) -> None:
        self.lines = [
            "mc_setbmc 0x20",
            "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr",
            "sel_enable 0x20 1000 0x0a",
            # Sensor 0 must be the watchdog.
            "sensor_add 0x20 0 0 35 0x6f event-only",
            f"sensor_set_event_support 0x20 0 0 enable scanning per-state {FOUR} {NONE} {FOUR} {NONE}",
        ]

    def measured(
        self, number: int, kind: int, entity: tuple[int, int], name: str, unit: int, factor: int, value: int,
        thresholds: tuple[int, ...] = (0,) * 6, readable: int = 0,
    ) -> None:  # fmt: skip
        """An analog sensor; ``readable`` has a bit for each threshold (LNC LC LNR UNC UC UNR)."""
        enabled = "".join("1" if readable >> bit & 1 else "0" for bit in (5, 4, 3, 2, 1, 0))
        mask = f"000{'1' * 6}000000"
        self.lines += [
            f"sensor_add 0x20 0 {number} {kind} 0x01",
            f"sensor_set_threshold 0x20 0 {number} settable {enabled} {' '.join(map(str, thresholds))}",
            f"sensor_set_event_support 0x20 0 {number} enable scanning per-state {mask} {mask} {mask} {mask}",
            f"sensor_set_value 0x20 0 {number} {value} 0",
        ]
        label = name.encode()
        body = [
            0x20,
            0,
            number,
            *entity,
            0x7F,
            0x68,
            kind,
            1,
            0x95,
            0x7A,
            0x95,
            0x7A,
            readable,
            readable,
            0,
            unit,
            0,
            0,
        ]
        body += [factor, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, *thresholds, 2, 2, 0, 0, 0, 0xC0 | len(label), *label]
        self._record(1, body)

    def told(self, number: int, kind: int, entity: tuple[int, int], name: str, bit: int, event: int = 0x6F) -> None:
        """A discrete sensor of which one state holds."""
        self.lines += [
            f"sensor_add 0x20 0 {number} {kind} 0x{event:x}",
            f"sensor_set_event_support 0x20 0 {number} enable scanning per-state {ALL} {ALL} {ALL} {ALL}",
            f"sensor_set_bit 0x20 0 {number} {bit} 1 0",
        ]
        label = name.encode()
        body = [
            0x20,
            0,
            number,
            *entity,
            0x67,
            0x40,
            kind,
            event,
            255,
            0,
            255,
            0,
            255,
            0,
            0xC0,
            0,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ]
        self._record(2, [*body, 0xC0 | len(label), *label])

    def _record(self, kind: int, body: list[int]) -> None:
        record = [0, 0, 0x51, kind, len(body), *body]
        self.lines.append("main_sdr_add 0x20 " + " ".join(f"0x{byte:02x}" for byte in record))

    def text(self) -> str:
        return "\n".join([*self.lines, "mc_enable 0x20", ""])


def server() -> Sensors:
    """Six supplies at 1,200 W of input each, four fans, an inlet at 24 C, redundancy."""
    sensors = Sensors()
    sensors.measured(1, 1, (0x37, 1), "Inlet Temp", 1, 1, 24, (47, 42, 38, 0, 0, 0), 0x38)
    for index in range(1, 5):
        sensors.measured(16 + index, 4, (0x1D, index), f"Fan{index}", 0x12, 100, 90, (0, 0, 0, 0, 10, 20), 0x03)
    for index in range(1, 7):
        sensors.measured(32 + index, 11, (10, index), f"PSU{index} Input", 6, 10, 120)
        sensors.told(48 + index, 8, (10, index), f"PSU{index} Status", 0)
    sensors.told(64, 8, (19, 1), "PS Redundancy", 0, 0x0B)
    return sensors


class Ipmi:
    """A running simulator, and a way to change its sensors."""

    def __init__(self, folder: Path) -> None:
        self.port, self._console = free_port(socket.SOCK_DGRAM), free_port()
        (folder / "state").mkdir()
        settings = {"port": self.port, "console": self._console, "user": USER, "password": PASSWORD}
        (folder / "lan.conf").write_text(LAN.format(**settings))
        (folder / "gpunode.emu").write_text(server().text())
        command = ["ipmi_sim", "-n", "-c", "lan.conf", "-f", "gpunode.emu", "-s", "state"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _turn in range(100):
            with contextlib.suppress(OSError):
                # Kept: the simulator resets one that comes right after another has gone.
                self._talk = socket.create_connection(("127.0.0.1", self._console), 5)
                return
            time.sleep(0.05)
        self.close()
        raise RuntimeError(self.log.read_text(errors="replace"))

    def tell(self, *lines: str) -> None:
        """Send commands to the simulator's console, and wait until all are done: it echoes what it reads."""
        end = f"end-{time.monotonic_ns()}"
        self._talk.sendall("".join(f"{line}\r\n" for line in (*lines, end)).encode())
        said = b""
        while f"{end}\n".encode() not in said:
            said += self._talk.recv(4096)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(5)


@pytest.fixture
def ipmi(tmp_path: Path) -> t.Iterator[Ipmi]:
    simulator = Ipmi(tmp_path)
    yield simulator
    simulator.close()
