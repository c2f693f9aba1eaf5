# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests of role gate and the condition that it sets, against the schema of Kubernetes and against each other.

The schema is a part of Kubernetes' own (its source is in the file), checked with jsonschema, which ansible-lint brings:
the whole one and a library for it are 108 MB to check two files. A part that is not in it is refused, not passed.
"""

from __future__ import annotations

import copy
import http.server
import json
import ssl
import subprocess
import threading
import typing as t
from pathlib import Path

import jinja2
import jsonschema
import pytest
import yaml

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import kubernetes

ROLE = Path(__file__).resolve().parents[3] / "roles/gate"
SCHEMA = json.loads(Path(__file__).with_name("schema-1.37.json").read_text(encoding="utf-8"))
GROUPS = {"v1": "core.v1", "apps/v1": "apps.v1", "batch/v1": "batch.v1", "rbac.authorization.k8s.io/v1": "rbac.v1"}
MANIFESTS = ("gpufleet-node-condition.yml", "gpufleet-init-container.yml")
Document = dict[str, t.Any]


def load(name: str) -> list[Document]:
    """The documents of a manifest, under the role's defaults."""
    text = (ROLE / f"templates/{name}.j2").read_text(encoding="utf-8")
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    rendered = environment.from_string(text).render(ansible_managed="Ansible managed", **defaults)
    return list(yaml.safe_load_all(rendered))


def check(document: Document) -> None:
    name = f"io.k8s.api.{GROUPS[document['apiVersion']]}.{document['kind']}"
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}).validate(document)


def pod(document: Document) -> Document:
    return t.cast(Document, document["spec"]["template"]["spec"])


def workload(name: str) -> Document:
    return load(name)[-1]


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_of_the_schema(name: str) -> None:
    for document in load(name):
        check(document)


SPOIL: dict[str, t.Callable[[Document], t.Any]] = {
    "a misspelt key": lambda spec: spec["containers"][0].update(comand=["true"]),
    "a misspelt key of an init container": lambda spec: spec["initContainers"][0].update(volumeMount=[]),
    "a text for a list": lambda spec: spec["containers"][0].update(command="true"),
    "no name": lambda spec: spec["containers"][0].pop("name"),
    "a number for a text": lambda spec: spec["volumes"][0].update(name=1),
    "a part that the schema here lacks": lambda spec: spec.update(affinity={}),
}


@pytest.mark.parametrize("how", SPOIL)
def test_a_spoilt_manifest_is_not(how: str) -> None:
    document = copy.deepcopy(workload("gpufleet-init-container.yml"))
    SPOIL[how](pod(document))
    with pytest.raises(jsonschema.ValidationError):
        check(document)


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_is_mounted_is_there_and_read_only(name: str) -> None:
    spec = pod(workload(name))
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    (gate,) = [one for one in (*spec.get("initContainers", []), *spec["containers"]) if "volumeMounts" in one]
    assert {mount["name"]: mount["mountPath"] for mount in gate["volumeMounts"]} == volumes
    assert all(mount["readOnly"] for mount in gate["volumeMounts"])
    assert gate["command"][2] == volumes["gate"] + "/gpufleet-gate"


def test_the_account_may_do_what_the_updater_asks_and_no_more() -> None:
    by_kind = {document["kind"]: document for document in load("gpufleet-node-condition.yml")}
    assert by_kind["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    (subject,) = by_kind["ClusterRoleBinding"]["subjects"]
    account = by_kind["ServiceAccount"]["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    assert by_kind["ClusterRoleBinding"]["roleRef"]["name"] == by_kind["ClusterRole"]["metadata"]["name"]
    daemon = by_kind["DaemonSet"]
    assert pod(daemon)["serviceAccountName"] == account["name"]
    assert daemon["spec"]["selector"]["matchLabels"] == daemon["spec"]["template"]["metadata"]["labels"]


class Api(http.server.ThreadingHTTPServer):
    """The two calls of the Kubernetes API over TLS: a node, and its conditions merged by their type."""

    token = "first"

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.node: Document = {"metadata": {"name": "n1"}, "status": {"conditions": [ready]}}
        self.calls: list[str] = []
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=api",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key", "-out", folder / "ca.crt"],
            check=True, capture_output=True,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "ca.crt", folder / "key")
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Api

    def _answer(self, status: int, body: Document) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _allowed(self, path: str) -> bool:
        self.server.calls.append(self.command)
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            self._answer(401, {"kind": "Status", "message": "Unauthorized"})
        elif self.path != path:
            self._answer(404, {"kind": "Status", "message": "not found"})
        else:
            return True
        return False

    def do_GET(self) -> None:
        if self._allowed("/api/v1/nodes/n1"):
            self._answer(200, self.server.node)

    def do_PATCH(self) -> None:
        if not self._allowed("/api/v1/nodes/n1/status"):
            return
        assert self.headers["Content-Type"] == "application/strategic-merge-patch+json"
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        check({"apiVersion": "v1", "kind": "Node", **patch})
        merged = {one["type"]: one for one in self.server.node["status"]["conditions"]}
        merged.update({one["type"]: one for one in patch["status"]["conditions"]})
        self.server.node["status"]["conditions"] = list(merged.values())
        self._answer(200, self.server.node)

    def log_message(self, format: str, *args: t.Any) -> None:
        pass


@pytest.fixture
def api(tmp_path: Path) -> t.Iterator[Api]:
    server = Api(tmp_path)
    (tmp_path / "token").write_text("first\n")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def finding(**more: t.Any) -> Document:
    return {"id": "gpu-count/host", "check": "gpu-count", "state": "fail", "found": "7 of 8", "action": "replace",
            "policy": "block", **more}  # fmt: skip


def made(state: str, *findings: Document) -> Document:
    return {"state": state, "findings": list(findings)}


@pytest.mark.needs("openssl")
def test_the_condition_follows_the_verdict(api: Api, tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.server_address[1])}
    said: list[str] = []
    updater = kubernetes.Updater("n1", kubernetes.in_cluster(environ, str(tmp_path)), said.append)

    def condition() -> Document:
        (found,) = [one for one in api.node["status"]["conditions"] if one["type"] == "GPUFleetReady"]
        return t.cast(Document, found)

    assert updater.update(made("not_ready", finding()), 0)
    first = condition()
    assert (first["status"], first["reason"]) == ("False", "GpuCount")
    assert first["message"] == "gpu-count/host: 7 of 8 -> replace"
    # What has not changed is not sent again before five minutes are over.
    assert updater.update(made("not_ready", finding()), 299) and api.calls == ["GET", "PATCH"]
    assert updater.update(made("not_ready", finding()), 301) and api.calls == ["GET", "PATCH", "PATCH"]
    # The kubelet has renewed the token: the old one is refused, said and not fatal, the new one is read.
    api.token = "second"
    assert not updater.update(made("ready"), 302)
    assert "401" in said[-1] and condition()["status"] == "False"
    (tmp_path / "token").write_text("second")
    assert updater.update(made("ready"), 303)
    assert (condition()["status"], condition()["reason"]) == ("True", "Ready")
    assert updater.update(made("unknown", finding(state="unknown")), 304)
    assert condition()["status"] == "Unknown"
    assert api.node["status"]["conditions"][0]["type"] == "Ready", "others' conditions stay"
    # Another pod begins anew, and takes over when the state began.
    api.node["status"]["conditions"][1]["lastTransitionTime"] = "2026-01-02T00:00:00Z"
    again = kubernetes.Updater("n1", kubernetes.in_cluster(environ, str(tmp_path)), said.append)
    assert again.update(made("unknown", finding(state="unknown")), 0)
    assert condition()["lastTransitionTime"] == "2026-01-02T00:00:00Z"


@pytest.mark.needs("openssl")
def test_an_api_of_another_authority_gets_no_token(api: Api, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    Api(other).server_close()
    (other / "token").write_text("first")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.server_address[1])}
    said: list[str] = []
    assert not kubernetes.Updater("n1", kubernetes.in_cluster(environ, str(other)), said.append).update(
        made("ready"), 0
    )
    assert "certificate verify failed" in said[0] and api.calls == []
