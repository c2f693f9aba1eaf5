# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wheels for another machine than this one, found by the real pip on an index on loopback."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import os
import subprocess
import threading
import zipfile

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import wheels
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.lock import LockProblem

WHEELS = {
    "torch-2.9.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
        "nvidia_nccl_cu12==2.27.5 ; platform_system == 'Linux' and platform_machine == 'x86_64'",
        "typing.extensions>=4",
        "tomli ; python_version < '3.12'",
    ),
    "torch-2.9.0-cp312-cp312-manylinux_2_28_aarch64.whl": ("typing_extensions>=4",),
    "torch-2.9.0-cp313-cp313t-manylinux_2_28_x86_64.whl": ("typing_extensions>=4",),
    "nvidia_nccl_cu12-2.27.5-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": (),
    "typing_extensions-4.15.0-py3-none-any.whl": (),
    "typing_extensions-4.16.0-py3-none-manylinux_2_40_x86_64.whl": (),
    "tomli-2.0.0-py3-none-any.whl": (),
    "nohash-1.0-py3-none-any.whl": (),
}


def made(name, requires):
    project, version = name.split("-")[:2]
    info = f"{project}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    tags = "-".join(name[: -len(".whl")].split("-")[2:])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tags}\n")
        archive.writestr(f"{info}/RECORD", "")
    return stream.getvalue(), metadata.encode()


@pytest.fixture(scope="module")
def contents():
    return {name: made(name, requires) for name, requires in WHEELS.items()}


class Handler(http.server.SimpleHTTPRequestHandler):
    """An index of PEP 503 with metadata of PEP 658; it counts the wheels that are asked for."""

    def __init__(self, contents, asked, *arguments, **settings):
        self.contents, self.asked = contents, asked
        super().__init__(*arguments, **settings)

    def do_GET(self):
        kind, _slash, name = self.path.strip("/").partition("/")
        if kind == "simple":
            links = [self.link(item) for item in self.contents if item.split("-")[0].replace("_", "-") == name]
            body, found = "".join(links).encode(), bool(links)
        else:
            wheel = name.removesuffix(".metadata")
            body, found = self.contents[wheel][name.endswith(".metadata")], True
            if wheel == name:
                self.asked.append(name)
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html" if kind == "simple" else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def link(self, name):
        data, metadata = self.contents[name]
        fragment = "" if name.startswith("nohash") else f"#sha256={hashlib.sha256(data).hexdigest()}"
        digest = hashlib.sha256(metadata).hexdigest()
        return f'<a href="/files/{name}{fragment}" data-core-metadata="sha256={digest}">{name}</a>\n'

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def index(contents):
    asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, contents, asked))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


def line(contents, name):
    project, version = name.split("-")[:2]
    return f"{project.replace('_', '-')}=={version} --hash=sha256:{hashlib.sha256(contents[name][0]).hexdigest()}"


X86 = "torch-2.9.0-cp312-cp312-manylinux_2_28_x86_64.whl"
ARM = "torch-2.9.0-cp312-cp312-manylinux_2_28_aarch64.whl"
FREE_THREADED = "torch-2.9.0-cp313-cp313t-manylinux_2_28_x86_64.whl"
NCCL = "nvidia_nccl_cu12-2.27.5-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
TYPING = "typing_extensions-4.15.0-py3-none-any.whl"
TYPING_NEW = "typing_extensions-4.16.0-py3-none-manylinux_2_40_x86_64.whl"


@pytest.mark.parametrize(
    ("python", "arch", "glibc", "expected"),
    [
        # Markers, tags and glibc are the target's, whatever this machine is.
        ("3.12", "x86_64", "2.39", [NCCL, X86, TYPING]),
        ("3.12.4", "x86_64", "2.41", [NCCL, X86, TYPING_NEW]),
        ("3.12", "aarch64", "2.39", [ARM, TYPING]),
        ("3.13t", "x86_64", "2.28", [FREE_THREADED, TYPING]),
    ],
)
def test_wheels_of_another_machine(index, contents, monkeypatch, python, arch, glibc, expected):
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://127.0.0.1:1/simple")
    target = wheels.Target(python=python, arch=arch, glibc=glibc, index_url=index)
    assert wheels.resolve(target, ["torch==2.9.0"]) == sorted(line(contents, name) for name in expected)


def test_a_folder_of_wheels_is_hashed(contents, tmp_path):
    for name in (ARM, TYPING):
        (tmp_path / name).write_bytes(contents[name][0])
    target = wheels.Target(python="3.12", arch="aarch64", glibc="2.36", find_links=(str(tmp_path),), no_index=True)
    assert wheels.resolve(target, ["torch"]) == [line(contents, ARM), line(contents, TYPING)]


def test_settings_of_the_machine_hold_where_asked(index, contents, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", index)
    target = wheels.Target(python="3.12", arch="aarch64", glibc="2.36", settings=True)
    assert wheels.resolve(target, ["torch==2.9.0"]) == [line(contents, ARM), line(contents, TYPING)]


@pytest.mark.parametrize(
    ("target", "requirements", "says"),
    [
        ({}, ["torch==9.9"], "torch==9.9.*3.12, x86_64, glibc 2.39.*No matching distribution"),
        ({"glibc": "2.17"}, ["torch==2.9.0"], "No matching distribution"),
        ({"glibc": "1.0"}, ["torch==2.9.0"], "glibc 1.0: no wheel"),
        ({}, ["torch==2.9.0", "typing_extensions<4"], "torch==2.9.0, typing_extensions<4"),
    ],
)
def test_no_wheels_is_said_with_pips_reason(index, target, requirements, says):
    asked = wheels.Target(**{"python": "3.12", "arch": "x86_64", "glibc": "2.39", "index_url": index, **target})
    with pytest.raises(LockProblem, match=says):
        wheels.resolve(asked, requirements)


def test_a_pip_without_lazy_wheels_is_asked_again():
    asked = []

    def pip(command, _environment):
        asked.append("--use-feature=fast-deps" in command)
        if asked[-1]:
            return subprocess.CompletedProcess(command, 2, "", "option --use-feature: invalid choice: 'fast-deps'")
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no network")

    with pytest.raises(LockProblem, match="no network"):
        wheels.resolve(wheels.Target("3.12", "x86_64", "2.39"), ["torch"], pip)
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("download", "says"),
    [
        ({"url": "https://x.example/a.whl", "archive_info": {}}, "no SHA-256 for https://x.example/a.whl"),
        ({"url": "https://x.example/a.whl", "archive_info": {"hash": "md5=00"}}, "no SHA-256"),
        ({"url": "https://x.example/a", "vcs_info": {}}, "no archive"),
    ],
)
def test_a_wheel_without_hash_is_not_locked(download, says):
    with pytest.raises(LockProblem, match=says):
        wheels._line({"metadata": {"name": "a", "version": "1"}, "download_info": download})


def test_wanted_is_all_that_a_plan_names():
    torch = {
        "requirement": "torch==2.2.2+cu121",
        "torchvision": "0.17.2",
        "torchaudio": "2.2.2",
        "python_packages": {"numpy": "<2"},
    }
    assert wheels.wanted({"torch": torch}) == [
        "torch==2.2.2+cu121",
        "torchvision==0.17.2",
        "torchaudio==2.2.2",
        "numpy<2",
    ]
