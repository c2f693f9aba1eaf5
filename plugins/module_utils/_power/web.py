# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTPS to a BMC: one address, JSON objects only, with limits on time and size, and a login that is tried once."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import time
import typing as t
import urllib.parse
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.login import Login
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import Trouble, text, within

#: Bytes of one answer: a collection with all its members of a large chassis is a few hundred KB.
ANSWER_LIMIT = 4 << 20
#: Seconds for one answer. Slow BMCs take five.
ANSWER_SECONDS = 15.0
ROOT = "/redfish/v1"
REDIRECTS = (301, 302, 307, 308)


@dataclass
class Bmc:
    """Where and as whom to ask. ``ca_file`` names who signs for it, empty for the system's own authorities."""

    host: str
    port: int = 443
    user: str = ""
    password: str = field(default="", repr=False)
    verify: bool = True
    ca_file: str = ""
    #: Seconds for all questions together.
    limit: float = 60.0


class Web:
    """Gets resources of one BMC, one after the other, over a connection that is kept where the BMC keeps it."""

    def __init__(self, bmc: Bmc, login: t.Optional[Login] = None) -> None:
        self._bmc = bmc
        #: Asked until the login was taken.
        self._login = login
        self._deadline = time.monotonic() + bmc.limit
        self._connection: t.Optional[http.client.HTTPSConnection] = None
        #: The words of a refusal, after which nothing more is asked.
        self._refused = ""

    def get(self, path: str) -> t.Dict[str, t.Any]:
        """A resource. Raises Trouble."""
        if self._refused:
            raise Trouble("refused", self._refused)
        if self._login is None or path.rstrip("/") == ROOT:
            return self._within(path)
        with self._login.turn():
            found = self._within(path)
        self._login = None
        return found

    def _within(self, path: str) -> t.Dict[str, t.Any]:
        limit = min(ANSWER_SECONDS, self._deadline - time.monotonic())
        try:
            return within(limit, lambda: self._get(path, limit))
        except Trouble as trouble:
            if trouble.state == "silent":
                self._abandon()
            if trouble.state == "refused":
                self._refused = str(trouble)
            raise

    def _abandon(self) -> None:
        """Cut the connection under a read that waits; to close it would wait for that read."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _get(self, path: str, limit: float) -> t.Dict[str, t.Any]:
        status, headers, body = self._ask(path, limit)
        if status in REDIRECTS:
            target = str(headers.get("Location") or "")
            place = urllib.parse.urlsplit(target)
            # The login goes to this BMC and nowhere else.
            if place.hostname not in (None, self._bmc.host.lower()) or not place.path.startswith("/"):
                raise Trouble("malformed", f"{path} is said to lie at {text(target)!r}, which is not of this BMC")
            status, headers, body = self._ask(place.path, limit)
        if status == 401:
            raise Trouble("refused", "it refuses the user and password (401); they were tried once")
        if status == 403:
            raise Trouble("forbidden", f"this user may not read {path} (403)")
        if status == 404:
            raise Trouble("missing", f"{path} is not there (404)")
        if status != 200:
            raise Trouble("malformed", f"{path} gives status {status}")
        try:
            found = json.loads(body.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            start = text(body[:60].decode("utf-8", "replace"))
            raise Trouble("malformed", f"{path} is no JSON, it begins with {start!r}") from None
        if not isinstance(found, dict):
            raise Trouble("malformed", f"{path} is no JSON object")
        return found

    def _ask(self, path: str, limit: float) -> t.Tuple[int, http.client.HTTPMessage, bytes]:
        headers = {"Accept": "application/json", "OData-Version": "4.0", "User-Agent": "gpufleet"}
        # The root is public: a host that is no BMC is found out before it is told the password.
        if self._bmc.user and path.rstrip("/") != ROOT:
            login = f"{self._bmc.user}:{self._bmc.password}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(login).decode("ascii")
        kept = self._connection is not None
        try:
            return self._once(path, headers, limit)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if kept and not isinstance(error, socket.timeout):
                try:  # It may have ended a connection that was idle; nothing was answered, so no login was judged.
                    return self._once(path, headers, limit)
                except (http.client.HTTPException, OSError) as again:
                    error = again
            raise _trouble(error) from None
        except ValueError:
            raise Trouble("malformed", f"{path!r} is no path") from None

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._bmc.ca_file or None)
        except OSError as error:  # also what is no certificate
            raise Trouble("untrusted", f"{self._bmc.ca_file} holds no authorities: {text(error)}") from None
        if not self._bmc.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _once(self, path: str, headers: t.Dict[str, str], limit: float) -> t.Tuple[int, http.client.HTTPMessage, bytes]:
        if self._connection is None:
            context = self._context()
            self._connection = http.client.HTTPSConnection(
                self._bmc.host, self._bmc.port, timeout=limit, context=context
            )
        connection = self._connection
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(ANSWER_LIMIT + 1)
        if len(body) > ANSWER_LIMIT:
            self.close()
            raise Trouble("malformed", f"{path} gives more than {ANSWER_LIMIT >> 20} MiB")
        if answer.will_close:
            self.close()
        return answer.status, answer.headers, body


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Trouble("untrusted", f"its certificate is not trusted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return Trouble("malformed", f"no TLS could be agreed on: {text(error.reason or error)}")
    if isinstance(error, http.client.HTTPException):
        return Trouble("malformed", f"it does not speak HTTP: {type(error).__name__} {text(error)}".strip())
    if isinstance(error, socket.timeout):
        return Trouble("silent", "no answer within the time limit")
    return Trouble("silent", f"no connection: {text(error)}")
