# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts pip into an environment that was made without ensurepip, which Debian splits off from Python.

Takes the wheel that pip.txt pins, by its SHA-256, from where pip's own settings point: find-links folders, then
index-url, then extra-index-url, from the environment and pip.conf. Runs on Python 3.11+ with the standard library.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import os
import re
import ssl
import subprocess
import sys
import typing as t
import unittest
import urllib.parse
import urllib.request
from pathlib import Path


def settings(environ: t.Mapping[str, str], home: Path) -> dict[str, str]:
    """pip's settings by their long names, the environment over the user's pip.conf over the machine's."""
    folders = [Path(folder) / "pip" for folder in reversed(environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"))]
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [*folders, Path("/etc"), home / ".pip", user / "pip"]
    parser = configparser.RawConfigParser()
    parser.read([folder / "pip.conf" for folder in files] + [environ.get("PIP_CONFIG_FILE", os.devnull)])
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found.update({name.replace("_", "-"): value for name, value in parser.items(section)})
    given = {name[4:].lower().replace("_", "-"): value for name, value in environ.items() if name.startswith("PIP_")}
    return {**found, **{name: value for name, value in given.items() if value}}


def public_index() -> str:
    """The public index: the standard library names it in one place, a comment at the head of unittest.mock."""
    text = (Path(unittest.__file__).parent / "mock.py").read_text(encoding="utf-8")
    match = re.search(r"(https://\S+)/project/mock", text)
    if not match:
        raise OSError(
            "this Python has no ensurepip and no index is set; apt install python3-venv, or set PIP_INDEX_URL"
        )
    return f"{match[1]}/simple"


def fetch(url: str, config: t.Mapping[str, str]) -> bytes:
    """What lies at an address, which may hold a user and a password."""
    parts = urllib.parse.urlsplit(url)
    user, _at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl())
    if user:
        token = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    cert = config.get("cert")
    context = ssl.create_default_context(**({"capath": cert} if cert and os.path.isdir(cert) else {"cafile": cert}))
    with urllib.request.urlopen(request, timeout=float(config.get("timeout", 60)), context=context) as answer:
        return t.cast(bytes, answer.read())


def places(wheel: str, config: t.Mapping[str, str]) -> t.Iterator[str]:
    """The addresses at which the settings offer the wheel."""
    for folder in config.get("find-links", "").split():
        named = urllib.parse.unquote(folder[7:]) if folder.startswith("file://") else folder
        path = Path(named) / wheel
        if path.is_file():
            yield path.resolve().as_uri()
    if config.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return
    for index in [config.get("index-url") or public_index(), *config.get("extra-index-url", "").split()]:
        page = f"{index.rstrip('/')}/pip/"
        for link in re.findall(r'href="([^"]*)"', fetch(page, config).decode()):
            if urllib.parse.unquote(link.split("#")[0]).endswith(f"/{wheel}") or link.split("#")[0] == wheel:
                yield urllib.parse.urljoin(page, link)


def main(venv: Path) -> None:
    lock = Path(__file__).with_name("pip.txt").read_text(encoding="utf-8")
    version = t.cast("re.Match[str]", re.search(r"^pip==(\S+)", lock))[1]
    wheel = f"pip-{version}-py3-none-any.whl"
    config = settings(os.environ, Path.home())
    for url in places(wheel, config):
        data = fetch(url, config)
        if hashlib.sha256(data).hexdigest() in re.findall(r"sha256:(\w+)", lock):
            break
    else:
        raise OSError(f"{wheel} with a hash of requirements/pip.txt is not at the index or in the wheel folder")
    path = venv / wheel
    path.write_bytes(data)
    command = [f"{path}/pip", "--isolated", "install", "--quiet", "--no-index", "--no-deps", str(path)]
    subprocess.run([sys.executable, "-I", *command], check=True)
    path.unlink()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"run: could not fetch pip, which this Python lacks: {error} (settings: PIP_INDEX_URL, PIP_CERT)")
