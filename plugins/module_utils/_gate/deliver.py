# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the verdict to whoever folds those of a fleet: into a mounted folder, or by PUT to an object store."""

from __future__ import annotations

import http.client
import os
import re
import ssl
import typing as t
from urllib.parse import quote, urlsplit

from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

#: Seconds for a connection, and for each answer.
LIMIT = 20.0
#: Bytes of a file with headers.
_HEADERS = 1 << 16


def deliver(text: str, name: str, to: str, headers_file: str = "") -> None:
    """Put ``text`` to where ``to`` says, as NAME.json. Raises OSError or ValueError with what went wrong.

    ``to``: an absolute folder, or an http or https address, in which ``{name}`` stands for the name; without it the
    file's name is appended. ``headers_file``: lines ``Name: value``, such as a token's, that no command line shows.
    """
    if not re.match(r"[\w.-]+\Z", name) or name.startswith("."):
        raise ValueError(f"the name of this host is {name!r}; letters, digits, dots and dashes make a file's name")
    if "://" not in to:
        if not os.path.isabs(to):
            raise ValueError(f"{to} is neither an absolute folder nor an http or https address")
        if not os.path.isdir(to):  # a share that is not mounted must not become a folder of this host
            raise FileNotFoundError(f"the folder {to} is not there")
        write_atomic(os.path.join(to, f"{name}.json"), text)
        return
    _put(
        text,
        to.replace("{name}", quote(name)) if "{name}" in to else f"{to.rstrip('/')}/{quote(name)}.json",
        headers_file,
    )


def _put(text: str, address: str, headers_file: str) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{parts.scheme}://{parts.hostname or ''} is neither a folder nor an http or https address")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=LIMIT, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("PUT", target, text.encode(), {"Content-Type": "application/json", **_headers(headers_file)})
        answer = connection.getresponse()
        answer.read(_HEADERS)
    except http.client.HTTPException as error:
        raise OSError(f"{parts.hostname} gave no answer of HTTP: {type(error).__name__}") from None
    finally:
        connection.close()
    # An address can be a secret (signed), so it is not shown.
    if not 200 <= answer.status < 300:
        raise OSError(f"{parts.hostname} answered {answer.status} {answer.reason}")


def _headers(path: str) -> t.Dict[str, str]:
    if not path:
        return {}
    with open(path, encoding="utf-8") as stream:
        lines = [line.strip() for line in stream.read(_HEADERS).splitlines() if line.strip()]
    pairs = [line.partition(":") for line in lines]
    if not all(middle and name for name, middle, _value in pairs):
        raise ValueError(f"{path} holds a line that is not Name: value")
    return {name.strip(): value.strip() for name, _middle, value in pairs}
