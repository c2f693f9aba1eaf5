# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Toolkits side by side, and where /usr/local/cuda leads. Compiling is tests/integration/cuda."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import toolkit as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.toolkits import link, python_headers, toolkits

SAYS = "#!/bin/sh\necho 'Cuda compilation tools, release {0}, V{0}.61'\n"


@pytest.fixture
def host(tmp_path):
    """Toolkits 12.2, 12.8 and one that does not start; the link leads to 12.2."""
    for version in ("12.2", "12.8", "11.8"):
        nvcc = tmp_path / f"usr/local/cuda-{version}/bin/nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text(SAYS.format(version) if version != "11.8" else "no program")
        nvcc.chmod(0o755)
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/cuda").symlink_to("/usr/local/cuda-12.2")
    (tmp_path / "usr/local/cuda").symlink_to("/etc/alternatives/cuda")
    return Runner(str(tmp_path))


def test_each_toolkit_is_told_once(host):
    assert [(one["path"], one["version"], one["packaged"]) for one in toolkits(host, "")] == [
        ("/usr/local/cuda-11.8", "", "host"),
        ("/usr/local/cuda-12.2", "12.2", "host"),
        ("/usr/local/cuda-12.8", "12.8", "host"),
    ]
    assert link(host) == "/usr/local/cuda-12.2"


@pytest.mark.parametrize(
    ("wanted", "asked", "states", "words"),
    [
        ("12.2", "packages", {"cuda-toolkit": "ok"}, "one that does not start in /usr/local/cuda-11.8, 12.2 in "),
        ("12.8", "packages", {"cuda-toolkit": "ok", "cuda-link": "warn"}, "CUDA_HOME=/usr/local/cuda-12.8"),
        ("", "packages", {"cuda-toolkit": "ok", "cuda-link": "warn"}, "/usr/local/cuda leads to /usr/local/cuda-12.2"),
        ("13.0", "packages", {"cuda-toolkit": "fail"}, "cuda_packages: true installs it"),
        ("11.8", "pip", {"cuda-toolkit": "fail"}, "hold no nvcc"),
    ],
)
def test_the_planned_one_is_there_and_the_link_is_left_alone(host, wanted, asked, states, words):
    found = checks.toolkit(toolkits(host, ""), wanted, link(host), asked)
    assert {one.check: one.state for one in found} == states
    assert words in " ".join(one.found + one.expected + one.reason for one in found)


def test_without_any(tmp_path):
    assert checks.toolkit(toolkits(Runner(str(tmp_path)), "/venv"), "", "", "packages")[0].found == "no toolkit"


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("echo /usr/include/python3.11", "ok", "/usr/include/python3.11/Python.h"),
        ("echo /usr/include/python3.12", "fail", "/usr/include/python3.12/Python.h is not there"),
        ("echo broken >&2; exit 1", "fail", "/venv/bin/python does not tell: exit status 1: broken"),
    ],
)
def test_the_headers_of_the_environments_python(tmp_path, script, state, words):
    for path, text in (("venv/bin/python", f"#!/bin/sh\n{script}\n"), ("usr/include/python3.11/Python.h", "")):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    finding = checks.headers(python_headers(Runner(str(tmp_path)), "/venv/bin/python"), "/venv/bin/python")
    assert (finding.state, words in finding.found) == (state, True), finding
