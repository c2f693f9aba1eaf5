# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict brought to a folder and to a server of this machine, and what became of the last pull."""

from __future__ import annotations

import http.server
import json
import os
import threading
import time

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import commands, deliver, outside, verdict

SECRET = "Bearer s3cret"


class Store(http.server.BaseHTTPRequestHandler):
    """Keeps what it is given, as an object store does; some addresses misbehave."""

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/slow/"):
            self.server.stop.wait(10)
            return
        if self.path.startswith("/noise/"):
            self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            return
        allowed = not self.path.startswith("/private/") or self.headers.get("Authorization") == SECRET
        if allowed:
            self.server.kept[self.path] = json.loads(body)
        self.send_response(201 if allowed else 403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments):
        pass


@pytest.fixture(scope="module")
def store():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        server.kept, server.stop = {}, threading.Event()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.stop.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "kept_at"),
    [
        ("", "/gpu1.json"),
        ("/bucket/verdicts/", "/bucket/verdicts/gpu1.json"),
        ("/bucket/{name}/latest.json?part=1", "/bucket/gpu1/latest.json?part=1"),
    ],
)
def test_an_object_store_keeps_it(store, path, kept_at):
    store.kept.clear()
    deliver.deliver('{"ok": true}', "gpu1", f"http://127.0.0.1:{store.server_port}{path}")
    assert store.kept == {kept_at: {"ok": True}}


def test_headers_come_from_a_file(store, tmp_path):
    address = f"http://127.0.0.1:{store.server_port}/private/"
    with pytest.raises(OSError, match=r"127\.0\.0\.1 answered 403 Forbidden"):
        deliver.deliver("{}", "gpu1", address)
    headers = tmp_path / "headers"
    headers.write_text(f"\nAuthorization: {SECRET}\n x-amz-acl : private\n")
    store.kept.clear()
    deliver.deliver("{}", "gpu1", address, str(headers))
    assert store.kept == {"/private/gpu1.json": {}}
    headers.write_text("s3cret\n")
    with pytest.raises(ValueError, match="a line that is not Name: value") as told:
        deliver.deliver("{}", "gpu1", address, str(headers))
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize("path", ["/slow/", "/noise/"])
def test_what_does_not_answer_as_it_should_is_no_delivery(store, path, monkeypatch):
    monkeypatch.setattr(deliver, "LIMIT", 0.3)
    began = time.monotonic()
    with pytest.raises(OSError, match=r"timed out|no answer of HTTP"):
        deliver.deliver("{}", "gpu1", f"http://127.0.0.1:{store.server_port}{path}?signature=s3cret")
    assert time.monotonic() - began < 5


def test_a_folder_keeps_it_whole(tmp_path):
    (tmp_path / "gpu1.json").write_text("old")
    deliver.deliver('{"ok": true}\n', "gpu1", str(tmp_path))
    assert (tmp_path / "gpu1.json").read_text() == '{"ok": true}\n'
    assert os.listdir(tmp_path) == ["gpu1.json"]


@pytest.mark.parametrize(
    ("name", "to", "error", "said"),
    [
        ("gpu1", "{folder}/absent", FileNotFoundError, "absent is not there"),
        ("gpu1", "inbox", ValueError, "neither an absolute folder"),
        ("gpu1", "ftp://a.example/x", ValueError, "ftp://a.example is neither"),
        ("gpu1", "https:///x", ValueError, "neither a folder"),
        ("gpu1", "http://127.0.0.1:1/", OSError, "refused"),
        ("../gpu1", "{folder}", ValueError, "the name of this host"),
        (".gpu1", "{folder}", ValueError, "the name of this host"),
        ("gpu1\n", "{folder}", ValueError, "the name of this host"),
        ("", "{folder}", ValueError, "the name of this host"),
    ],
)
def test_what_cannot_be_delivered_is_said(tmp_path, name, to, error, said):
    with pytest.raises(error, match=said):
        deliver.deliver("{}", name, to.format(folder=tmp_path))
    assert os.listdir(tmp_path) == []


def test_the_command_delivers_a_verdict_that_does_not_hold_as_unknown_now(tmp_path, capsys):
    run, inbox = tmp_path / "run", tmp_path / "inbox"
    inbox.mkdir()
    assert commands.run(["deliver", f"--to={inbox}", "--name=gpu1"], str(run)) == 0
    told = json.loads((inbox / "gpu1.json").read_text())
    assert told["state"] == "unknown"
    assert abs(time.time() - time.mktime(time.strptime(told["judged_at"], "%Y-%m-%dT%H:%M:%SZ")) + time.timezone) < 60
    assert commands.run(["deliver", f"--to={inbox}/absent"], str(run)) == 2
    assert "was not delivered: the folder" in capsys.readouterr().err
    assert commands.run(["deliver"], str(run)) == 2
    assert "--to= is needed" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's verdict is believed")
def test_the_command_delivers_the_verdict_as_it_is(tmp_path):
    at = verdict.now()
    made = {
        **_finding.verdict([_finding.Finding("drift", "ok")]), "schema": 1, "judged_at": "2026-12-01T05:30:00Z",
        "uptime": at.uptime, "boot_id": at.boot_id, "valid_for": 900, "identity": {"driver": "580.95.05"},
    }  # fmt: skip
    (tmp_path / verdict.FILE).write_text(json.dumps(made))
    assert commands.run(["deliver", f"--to={tmp_path}", "--name=gpu1"], str(tmp_path)) == 0
    assert json.loads((tmp_path / "gpu1.json").read_text()) == {**made, "host": "gpu1"}


@pytest.mark.parametrize(
    ("result", "valid_for", "status", "state"),
    [
        ("success", "7200", 0, "ok"),
        ("exit-code", "7200", 0, "warn"),
        ("timeout", "7200", 0, "warn"),
        ("success", "soon", 2, None),
    ],
)
def test_a_pull_is_a_finding_of_the_next_look(tmp_path, result, valid_for, status, state):
    assert commands.run(["pulled", f"--result={result}", f"--valid-for={valid_for}"], str(tmp_path)) == status
    found = outside.read(str(tmp_path / outside.NAME), time.time(), os.geteuid())
    assert [(one.check, one.state, one.policy) for one in found] == ([("pull", state, "report")] if state else [])
