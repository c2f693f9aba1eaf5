# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict as a condition of the Kubernetes node, set from a pod on that node with its service account.

The API: PATCH of /api/v1/nodes/NAME/status with a strategic merge patch, where conditions are merged by their type
(the Kubernetes API reference, "NodeStatus" and "NodeCondition"). A condition is shown and alerted on; it keeps no pod
away, which is what the init container is for.
"""

from __future__ import annotations

import json
import os
import re
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _words
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict

TYPE = "GPUFleetReady"
STATUS = {"ready": "True", "not_ready": "False", "unknown": "Unknown"}
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
MESSAGE_LIMIT = 1000
#: Seconds after which a condition is sent again though nothing changed.
HEARTBEAT_S = 300.0
_REQUEST_S = 10.0

Condition = t.Dict[str, str]
#: Sends one request, with method, path and body, and returns status and body. Raises OSError.
Request = t.Callable[[str, str, t.Optional[t.Mapping[str, t.Any]]], t.Tuple[int, bytes]]


def condition(made: verdict.Verdict, before: t.Optional[t.Mapping[str, str]], at: str) -> Condition:
    """The condition that a verdict asks for. ``before``: the node's own of this type. ``at``: now, RFC 3339."""
    status = STATUS[made["state"]]
    told = [finding for finding in made["findings"] if finding["state"] in ("fail", "unknown")]
    blocking = [finding for finding in told if finding["policy"] == "block"]
    reason = re.sub(r"[^a-z0-9]+", " ", (blocking[0]["check"] if blocking else made["state"]).lower()).title()
    text = "; ".join(f"{finding['id']}: {finding['found']} -> {finding['action']}" for finding in blocking)
    same = before is not None and before.get("status") == status
    return {
        "type": TYPE,
        "status": status,
        "reason": reason.replace(" ", ""),
        "message": _words.plain(text, MESSAGE_LIMIT) or "every check that may block is well",
        "lastHeartbeatTime": at,
        "lastTransitionTime": str(before["lastTransitionTime"]) if before and same else at,
    }


class Updater:
    """Keeps the condition of one node. ``say`` gets what a person should read."""

    def __init__(self, node: str, request: Request, say: t.Callable[[str], None]) -> None:
        self._path = f"/api/v1/nodes/{node}"
        self._request = request
        self._say = say
        self._sent: t.Optional[Condition] = None
        self._sent_at = 0.0

    def update(self, made: verdict.Verdict, clock: float) -> bool:
        """Send the condition where it changed or is old. ``clock``: seconds that only grow. False: it is not there."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            before = self._sent if self._sent is not None else self._found()
            wanted = condition(made, before, at)
            unchanged = self._sent is not None and all(
                wanted[key] == self._sent[key] for key in ("status", "reason", "message")
            )
            if unchanged and clock - self._sent_at < HEARTBEAT_S:
                return True
            status, body = self._request("PATCH", self._path + "/status", {"status": {"conditions": [wanted]}})
            if status != 200:
                raise OSError(f"PATCH {self._path}/status: {status} {body[:200].decode('utf-8', 'replace')}")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._say(f"the condition was not set: {error}")
            return False
        if not unchanged:
            self._say(f"{TYPE} is {wanted['status']}: {wanted['message']}")
        self._sent, self._sent_at = wanted, clock
        return True

    def _found(self) -> t.Optional[t.Mapping[str, str]]:
        status, body = self._request("GET", self._path, None)
        if status != 200:
            raise OSError(f"GET {self._path}: {status} {body[:200].decode('utf-8', 'replace')}")
        conditions = json.loads(body.decode("utf-8")).get("status", {}).get("conditions") or []
        return next((item for item in conditions if item.get("type") == TYPE), None)


def in_cluster(environ: t.Mapping[str, str], account: str = ACCOUNT) -> Request:
    """Requests as the pod's service account. Its token is read each time: the kubelet renews it."""
    import http.client
    import ssl

    host, port = environ.get("KUBERNETES_SERVICE_HOST"), int(environ.get("KUBERNETES_SERVICE_PORT", "443"))
    if not host:
        raise ValueError(
            "KUBERNETES_SERVICE_HOST is not set: it runs in a pod, as gpufleet-node-condition.yml makes it"
        )

    def request(method: str, path: str, body: t.Optional[t.Mapping[str, t.Any]]) -> t.Tuple[int, bytes]:
        with open(os.path.join(account, "token"), encoding="ascii") as stream:
            headers = {"Authorization": f"Bearer {stream.read().strip()}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/strategic-merge-patch+json"
        trusted = ssl.create_default_context(cafile=os.path.join(account, "ca.crt"))
        connection = http.client.HTTPSConnection(host, port, timeout=_REQUEST_S, context=trusted)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from None
        finally:
            connection.close()

    return request
