# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""refresh_compat against a small index on loopback, and its readings of real texts."""

from __future__ import annotations

import functools
import hashlib
import http.server
import importlib
import io
import json
import pathlib
import shutil
import sys
import threading
import zipfile

import pytest
import yaml

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import loader

TOOLS = pathlib.Path(__file__).resolve().parents[3] / "tools"
DATA = TOOLS.parent / "plugins" / "plugin_utils" / "_compat" / "data"


@pytest.fixture(scope="module")
def refresh():
    sys.path.insert(0, str(TOOLS))
    yield importlib.import_module("refresh_compat")
    sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def package_index(refresh):
    return importlib.import_module("package_index")


CUDA_INIT = """
PYTORCH_RELEASES_CODE_CC: dict[str, dict[str, set[int]]] = {
    "13.0": {"x86_64": {75, 80}, "aarch64": {80, 110}},
    "14.0": {"x86_64": {80, 130}, "aarch64": {80}},
}
"""


def wheel(name: str, metadata: str, members: dict[str, str]) -> bytes:
    stem = "-".join(name.split("-")[:2])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("torch/lib/libtorch_cuda.so", bytes(range(256)) * 4096)
        for member, text in members.items():
            archive.writestr(member, text)
        archive.writestr(f"{stem}.dist-info/METADATA", metadata)
    return stream.getvalue()


def torch_wheels() -> dict[str, bytes]:
    metadata = (
        "Metadata-Version: 2.4\nName: torch\nVersion: 3.1.0\nRequires-Python: >=3.12\n"
        'Requires-Dist: filelock\nRequires-Dist: nvidia-cudnn-cu14==10.1.0.5; platform_system == "Linux"\n'
        'Requires-Dist: nvidia-nccl-cu14==3.1.2; platform_system == "Linux"\n'
        'Requires-Dist: cuda-toolkit[cublas]==14.0.1; platform_system == "Linux"\n'
        'Requires-Dist: triton~=4.0.0\nRequires-Dist: optree>=1; extra == "optree"\n'
    )
    made = {}
    for machine, cuda in (("x86_64", "'14.0'"), ("aarch64", "None")):
        for python in ("cp312", "cp313t"):
            name = f"torch-3.1.0-{python.rstrip('t')}-{python}-manylinux_2_34_{machine}.whl"
            made[name] = wheel(
                name,
                metadata,
                {
                    "torch/version.py": f"__version__ = '3.1.0'\ncuda: Optional[str] = {cuda}\n",
                    "torch/cuda/__init__.py": CUDA_INIT,
                    "torch/share/cmake/Torch/TorchConfig.cmake": 'set(F "-D_GLIBCXX_USE_CXX11_ABI=1")\n',
                },
            )
    return made


def companion_wheels(project: str, releases: dict[str, str]) -> dict[str, bytes]:
    made = {}
    for version, required in releases.items():
        name = f"{project}-{version}-py3-none-manylinux_2_28_x86_64.whl"
        asked = f"Requires-Dist: {required}\n" if required else ""
        made[name] = wheel(name, f"Name: {project}\nVersion: {version}\n{asked}", {})
    return made


class Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, files, sent, ranges, *arguments):
        self.files, self.sent, self.ranges = files, sent, ranges
        super().__init__(*arguments)

    def do_GET(self):
        part = self.path.strip("/").split("/")
        if part[0] == "simple":
            listing = [
                {
                    "filename": name,
                    "url": f"../../files/{name}",
                    "size": len(body),
                    "hashes": {"sha256": hashlib.sha256(body).hexdigest()},
                    "upload-time": "2027-03-01T10:00:00Z",
                    "yanked": False,
                }
                for name, body in self.files.items()
                if name.startswith(part[1] + "-")
            ]
            return self.answer(200, json.dumps({"meta": {"api-version": "1.1"}, "files": listing}).encode())
        body = self.files[part[1]]
        if not self.ranges or "Range" not in self.headers:
            return self.answer(200, body)
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        self.answer(206, body[int(first) : int(last) + 1])

    def answer(self, status, body):
        self.sent.append(len(body))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(files, ranges=True):
        sent = []
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, files, sent, ranges))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/simple", sent

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def files():
    return {
        **torch_wheels(),
        **companion_wheels("torchvision", {"0.40.0": "torch (==3.1.0)", "0.41.0": "torch (>=3.1.0)"}),
        **companion_wheels("torchaudio", {"2.11.1": "torch>=2.11", "2.11.0": ""}),
    }


@pytest.fixture
def folder(tmp_path):
    for path in DATA.glob("*.yml"):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_a_new_release_is_read_written_and_reproduced(refresh, serve, files, folder, capsys):
    url, sent = serve(files)
    assert refresh.main(["--index-url", url, "--data", str(folder), "--write"]) == 0
    said = capsys.readouterr().out
    row = yaml.safe_load((folder / "torch.yml").read_text())["releases"][-1]
    assert {key: row[key] for key in row if key not in ("variants", "source")} == {
        "version": "3.1.0",
        "date": "2027-03-01",
        "requires_python": ">=3.12",
        "default": "cu140",
        "default_on_aarch64": "cpu",
        "wheels": {"x86_64": ["3.12", "3.13t"], "aarch64": ["3.12", "3.13t"]},
        "glibc": {"x86_64": "2.34", "aarch64": "2.34"},
        "torchvision": "0.40.0",
        "torchaudio": "2.11.1",
        "triton": "~=4.0.0",
        "cxx11_abi": 1,
        "pins": {"cuda_runtime": "14.0.1", "cudnn": "10.1.0.5", "nccl": "3.1.2"},
        "confidence": "read",
    }
    assert row["variants"]["cu140"]["x86_64"] == [80, 130]
    assert row["variants"]["cu140"]["cudnn"] == "10.1.0.5"
    assert row["variants"]["cu130"]["cudnn"] == "9.26.0.51"
    assert row["variants"]["cu130"]["inferred"] == ["cudnn", "nccl"]
    assert row["variants"]["cu140"].get("inferred") is None
    for question in (
        "cu130: cudnn and nccl of this build",
        "cu130: is it on the wheel index?",
        "cu140: CUDA 14.0 is not in toolkits.yml",
        "cu140: sm [130] is not in the table `sass`",
        "variants: cu126, cu132, cu134 of 2.15.0 are gone",
    ):
        assert question in said
    assert loader.load(folder).releases["3.1.0"].torchvision == "0.40.0"
    assert refresh.main(["--index-url", url, "--data", str(folder), "--check", "3.0", "3.9"]) == 0
    assert "torch 3.1.0: as in the data" in capsys.readouterr().out
    assert refresh.main(["--index-url", url, "--data", str(folder)]) == 0
    assert "The data ends with torch 3.1.0, the index with 3.1.0." in capsys.readouterr().out
    # Parts of wheels were read, in blocks, never a whole one.
    assert max(sent) < min(len(body) for name, body in files.items() if name.startswith("torch-"))


def test_without_write_the_data_stays(refresh, serve, files, folder):
    before = (folder / "torch.yml").read_bytes()
    assert refresh.main(["--index-url", serve(files)[0], "--data", str(folder)]) == 0
    assert (folder / "torch.yml").read_bytes() == before


def test_a_difference_is_named(refresh, serve, files, folder, capsys):
    url, _sent = serve(files)
    refresh.main(["--index-url", url, "--data", str(folder), "--write"])
    text = (folder / "torch.yml").read_text().replace('nccl: "3.1.2"', 'nccl: "3.1.1"')
    (folder / "torch.yml").write_text(text)
    assert refresh.main(["--index-url", url, "--data", str(folder), "--check", "3.1", "3.1"]) == 1
    assert "pins.nccl: the data has '3.1.1', the index '3.1.2'" in capsys.readouterr().out


def test_an_index_without_ranges_is_refused_before_a_wheel_is_loaded(refresh, serve, files, folder, capsys):
    url, _sent = serve(files, ranges=False)
    assert refresh.main(["--index-url", url, "--data", str(folder)]) == 2
    assert "status 200 instead of 206" in capsys.readouterr().err


def test_no_index_is_said(refresh, folder, capsys):
    assert refresh.main(["--index-url", "http://127.0.0.1:1/simple", "--data", str(folder)]) == 2
    assert "127.0.0.1:1/simple/torch/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environment", "index"),
    [
        ({"PIP_INDEX_URL": "https://mirror.example/simple/"}, "https://mirror.example/simple"),
        ({"PIP_CONFIG_FILE": "{tmp}/pip.conf"}, "https://file.example/pypi"),
        (
            {"PIP_CONFIG_FILE": "{tmp}/pip.conf", "PIP_INDEX_URL": "https://mirror.example/s"},
            "https://mirror.example/s",
        ),
    ],
)
def test_the_index_is_that_of_pip(package_index, monkeypatch, tmp_path, environment, index):
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://file.example/pypi\ncert = /tmp/ca.pem\n")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(tmp=tmp_path))
    assert package_index.pip_settings().index_url == index


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('triton (==2.0.0) ; platform_system == "Linux" and platform_machine == "x86_64"', {"triton": "==2.0.0"}),
        ('nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux"', {"nvidia-cudnn-cu12": "==9.1.0.70"}),
        ('cuda-toolkit[cublas,nvtx]==13.0.2; platform_system == "Linux"', {"cuda-toolkit": "==13.0.2"}),
        ('optree>=0.13.0; extra == "optree"', {}),
        ('cuda-bindings<14,>=13.0.3; platform_system == "Linux"', {"cuda-bindings": "<14,>=13.0.3"}),
    ],
)
def test_requirements(refresh, line, expected):
    assert refresh.requirements([line]) == expected


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("cuda: Optional[str] = '13.2'\nhip: Optional[str] = None", "cu132"),
        ("__version__ = '2.0.1'\ncuda = '11.7'\n", "cu117"),
        ("cuda: Optional[str] = None\n", "cpu"),
    ],
)
def test_built_with(refresh, text, build):
    assert refresh.built_with(text) == build


def test_a_table_that_throws_the_machines_together_is_not_used(refresh):
    assert refresh.builds_of('PYTORCH_RELEASES_CODE_CC: dict[str, set[int]] = {"12.6": {50, 60}}') == {}


def test_supported_gpus_honours_the_legacy_branch(refresh):
    gpus = {"gpus": [{"pci_ids": ["2330"]}], "legacy": [{"pci_ids": ["1db8"]}]}
    chips = [
        {"devid": "0x1DB1", "name": "Tesla V100-SXM2-16GB", "features": ["kernelopen"], "legacybranch": "580.xx"},
        {"devid": "0x2C3A", "name": "NVIDIA RTX PRO 4500 Blackwell Server Edition", "features": ["kernelopen"]},
        {"devid": "0x2330", "name": "NVIDIA H100 80GB HBM3", "features": ["kernelopen"]},
        {"devid": "0x15F8", "name": "Tesla P100-PCIE-16GB", "features": []},
    ]
    assert refresh.unknown_gpus({"chips": chips}, gpus) == [
        "15f8 Tesla P100-PCIE-16GB: proprietary",
        "1db1 Tesla V100-SXM2-16GB: legacy branch 580.xx",
        "2c3a NVIDIA RTX PRO 4500 Blackwell Server Edition: open",
    ]
