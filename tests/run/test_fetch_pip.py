# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where pip comes from on a Python without ensurepip: index or folder, by hash, with and without a network."""

from __future__ import annotations

import base64
import http.server
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import types
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all wheels of the small set, and pip's."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    for lock in ("pip.txt", "ansible.txt"):
        subprocess.run([*pip, "--dest", folder, "--requirement", ROOT / "requirements" / lock], check=True)
    return folder


@pytest.fixture(scope="module")
def fetch_pip() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_pip", ROOT / "requirements" / "fetch_pip.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def without_ensurepip(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words before a command that run it where this machine's Pythons have no ensurepip, as Debian's have none."""
    empty = tmp_path_factory.mktemp("empty")
    find = "import ensurepip; print(ensurepip.__path__[0])"
    folders = set()
    for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        for python in filter(None, [shutil.which(name)]):
            done = subprocess.run([python, "-I", "-c", find], capture_output=True, text=True, check=False)
            folders.update(done.stdout.split("\n")[:1] if done.returncode == 0 else [])
    script = "".join(f'mount --bind "{empty}" "{folder}" && ' for folder in sorted(folders)) + 'exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    probe = subprocess.run(["unshare", "--map-root-user", "--mount", "--net", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"needs user namespaces: {probe.stderr.decode().strip()}")


def test_pip_from_the_index(clone: t.Any, without_ensurepip: list[str]) -> None:
    done = clone.run("ansible", "--version", prefix=without_ensurepip)
    assert "core 2." in done.stdout
    lock = (ROOT / "requirements/pip.txt").read_text(encoding="utf-8")
    command = [clone.root / ".venv/bin/python", "-m", "pip", "--version"]
    pip = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"pip=={pip.split()[1]} " in lock


@pytest.mark.parametrize("ensurepip", [True, False], ids=["ensurepip", "no-ensurepip"])
def test_no_network_and_a_folder_of_wheels(
    clone: t.Any, without_ensurepip: list[str], wheels: Path, ensurepip: bool
) -> None:
    alone = ["unshare", "--map-root-user", "--net", *([] if ensurepip else without_ensurepip)]
    folder = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    assert "core 2." in clone.run("ansible", "--version", prefix=alone, **folder).stdout


def test_no_network_and_nothing_else(clone: t.Any, without_ensurepip: list[str]) -> None:
    alone = ["unshare", "--map-root-user", "--net", *without_ensurepip]
    error = clone.run("ansible", "--version", expect=3, prefix=alone, PIP_RETRIES="0", PIP_FIND_LINKS="").stderr
    making, line = error.splitlines()
    assert "making .venv" in making
    assert line.startswith("run: could not fetch pip") and "PIP_INDEX_URL" in line


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        ({"home/.config/pip/pip.conf": "[global]\nindex_url = a"}, {}, {"index-url": "a"}),
        (
            {"home/.pip/pip.conf": "[global]\ncert = old", "home/.config/pip/pip.conf": "[global]\ncert = a"},
            {},
            {"cert": "a"},
        ),
        ({"home/.config/pip/pip.conf": "[global]\ncert = a"}, {"PIP_CERT": "b"}, {"cert": "b"}),
        ({"home/.config/pip/pip.conf": "[global]\ncert = a"}, {"PIP_CERT": ""}, {"cert": "a"}),
        (
            {"home/.config/pip/pip.conf": "[global]\ncert = a\n[install]\ncert = b\n[download]\ncert = c"},
            {},
            {"cert": "b"},
        ),
        ({"etc/pip/pip.conf": "[global]\ncert = a\ntimeout = 9"}, {"PIP_CERT": "b"}, {"cert": "b", "timeout": "9"}),
        ({"own.conf": "[global]\nno-index = true"}, {"PIP_CONFIG_FILE": "{0}/own.conf"}, {"no-index": "true"}),
    ],
)
def test_settings(
    fetch_pip: types.ModuleType,
    tmp_path: Path,
    files: dict[str, str],
    environ: dict[str, str],
    expected: dict[str, str],
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    given = {name: value.format(tmp_path) for name, value in environ.items()}
    found = fetch_pip.settings({"XDG_CONFIG_DIRS": str(tmp_path / "etc"), **given}, tmp_path / "home")
    assert expected.items() <= found.items()


class Index(http.server.BaseHTTPRequestHandler):
    """An index that wants a user and a password, and links relatively, as mirrors do."""

    wheel: t.ClassVar[Path]

    def do_GET(self) -> None:
        token = base64.b64encode(b"user:pass word").decode()
        if self.headers["Authorization"] != f"Basic {token}":
            self.send_error(401)
            return
        name = self.wheel.name
        page = f'<a href="pip-1.0-py3-none-any.whl">old</a> <a href="../../files/{name}#sha256=0">{name}</a>'
        answers = {"/simple/pip/": page.encode(), f"/files/{name}": self.wheel.read_bytes()}
        self.send_response(200 if self.path in answers else 404)
        self.end_headers()
        self.wfile.write(answers.get(self.path, b""))

    def log_message(self, *words: t.Any) -> None:
        """Quiet."""


@pytest.fixture
def index(wheels: Path) -> t.Iterator[str]:
    (Index.wheel,) = wheels.glob("pip-*.whl")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://user:pass%20word@127.0.0.1:{server.server_port}/simple/"
        server.shutdown()


def test_an_index_with_a_password(fetch_pip: types.ModuleType, index: str) -> None:
    config = {"index-url": index}
    (place,) = fetch_pip.places(Index.wheel.name, config)
    assert fetch_pip.fetch(place, config) == Index.wheel.read_bytes()


def test_another_wheel_of_that_name_is_refused(clone: t.Any, without_ensurepip: list[str], tmp_path: Path) -> None:
    version = (ROOT / "requirements/pip.txt").read_text(encoding="utf-8").split()[0].removeprefix("pip==")
    (tmp_path / f"pip-{version}-py3-none-any.whl").write_bytes(b"something else")
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    error = clone.run("ansible", "--version", expect=3, prefix=without_ensurepip, **settings).stderr
    assert "hash" in error.splitlines()[-1]
