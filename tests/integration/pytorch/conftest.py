# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tiny wheels with torch's name, an index that serves them, and the real module run on them with the real pip."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import typing as t
import zipfile
from pathlib import Path
from urllib.parse import unquote

import pytest

MODULE = "ansible_collections.gpufleet.pytorch.plugins.modules.torch_environment"


def build_wheel(
    folder: Path,
    name: str,
    version: str,
    files: t.Mapping[str, bytes] | None = None,
    *,
    requires: t.Sequence[str] = (),
    python: str = "",
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel with these files."""
    info = f"{name}-{version}.dist-info"
    headers = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    headers += [f"Requires-Dist: {line}" for line in requires] + ([f"Requires-Python: {python}"] if python else [])
    content = {
        **(files or {f"{name}/__init__.py": b""}),
        f"{info}/METADATA": ("\n".join(headers) + "\n").encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    records = []
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in content.items():
            archive.writestr(member, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{member},sha256={digest},{len(data)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*records, f"{info}/RECORD,,", ""]))
    return path


def build_torch(
    folder: Path,
    version: str = "2.9.0+cpu",
    cuda: str | None = None,
    *,
    files: int = 3,
    size: int = 1000,
    **more: t.Any,
) -> Path:
    """Write a wheel that has of torch what the module looks at, and a shared object."""
    text = f"__version__ = '{version}'\ncuda: Optional[str] = {cuda!r}\n"
    content = {
        "torch/__init__.py": b"",
        "torch/version.py": text.encode(),
        "torch/lib/libtorch_cpu.so": b"\x7fELF" * 1000,
    }
    content.update({f"torch/part_{number}.py": b"#" * size for number in range(files)})
    return build_wheel(folder, "torch", version, content, requires=["sympy>=1"], **more)


class Index:
    """A simple index (PEP 503) on the loopback that serves the wheels of a folder, and remembers what was asked."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        #: Sizes and, by PEP 658, the metadata beside the wheels: all that is needed before a download.
        self.tells = True
        index = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append(self.path)
                if self.path.endswith(".metadata"):
                    with zipfile.ZipFile(folder / unquote(self.path[1 : -len(".metadata")])) as archive:
                        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
                        self._answer(200, archive.read(name))
                    return
                if not self.path.startswith("/simple/"):
                    super().do_GET()
                    return
                project = self.path.split("/")[2]
                links = [
                    f'<a href="/{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}"'
                    f"{' data-dist-info-metadata=true' if index.tells else ''}>{path.name}</a>"
                    for path in sorted(folder.glob("*.whl"))
                    if path.name.split("-")[0].replace("_", "-") == project
                ]
                self._answer(200 if links else 404, ("<html><body>" + "\n".join(links) + "</body></html>").encode())

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_HEAD(self) -> None:
                if index.tells:
                    super().do_HEAD()
                else:
                    self.send_error(405)

            def log_message(self, *_words: object) -> None:
                """Nothing."""

        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
        )
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/simple"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Host:
    """The module on this machine, with folders, settings of pip and a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / "venv"
        self.store = folder / "store"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_CONFIG_DIRS": str(folder / "etc"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }

    def arguments(self, **args: t.Any) -> dict[str, t.Any]:
        plan = {"torch": {"version": "2.9.0", "variant": "cpu", "requirement": "torch==2.9.0+cpu"}}
        return {
            "plan": plan,
            "venv": str(self.venv),
            "wheel_store": str(self.store),
            "base_python": sys.executable,
            **args,
        }

    def start(self, **args: t.Any) -> subprocess.Popen[str]:
        text = json.dumps({"ANSIBLE_MODULE_ARGS": {"_ansible_remote_tmp": str(self.folder), **self.arguments(**args)}})
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, **args: t.Any) -> dict[str, t.Any]:
        """Run the module to its end; its answer without what it was given."""
        out, err = self.start(**args).communicate()
        assert out, err
        answer: dict[str, t.Any] = json.loads(out)
        answer.pop("invocation", None)
        return answer

    def fails(self, **args: t.Any) -> str:
        """Run the module, which has to fail; its message."""
        answer = self.run(**args)
        assert answer.get("failed"), answer
        return str(answer["msg"])

    def installed(self) -> dict[str, str]:
        """The packages that pip itself lists, so that the judge is not what is judged."""
        done = subprocess.run(
            [str(self.venv / "bin" / "python"), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
            capture_output=True,
            check=True,
        )
        return {item["name"]: item["version"] for item in json.loads(done.stdout) if item["name"] != "pip"}


def tree(folder: Path) -> dict[str, str]:
    """Every path below the folder with what it is, to see that nothing was touched."""
    return {
        str(path.relative_to(folder)): f"{path.lstat().st_mode:o} {path.lstat().st_size} {path.lstat().st_mtime_ns}"
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with torch 2.9.0+cpu and what it needs."""
    folder = tmp_path / "wheels"
    build_torch(folder)
    build_wheel(folder, "sympy", "1.14.0")
    return folder


@pytest.fixture
def index(wheels: Path) -> t.Iterator[Index]:
    served = Index(wheels)
    yield served
    served.close()
