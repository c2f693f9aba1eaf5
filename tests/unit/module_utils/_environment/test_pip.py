# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import pip
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import EnvironmentFailure, Wanted

WANTED = Wanted("2.13.0", "cpu", ("torch==2.13.0+cpu",), ("numpy<2",))
HASH = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"


@pytest.mark.parametrize(
    "source, lines",
    [
        (
            pip.Source("https://i.example.invalid/cpu", "/s"),
            ["--find-links /s", "--index-url https://i.example.invalid/cpu"],
        ),
        (
            pip.Source("https://i.example.invalid/cpu", "/s", isolated=False),
            ["--find-links /s", "--extra-index-url https://i.example.invalid/cpu"],
        ),
        (pip.Source("", "/a b"), ["--find-links '/a b'", "--no-index"]),
        (pip.Source("", "/s", isolated=False), ["--find-links /s"]),
    ],
)
def test_places_that_pip_looks_in(source: pip.Source, lines: t.List[str]) -> None:
    assert source.lines() == lines


def test_isolated_environment_has_nothing_of_pips() -> None:
    environ = {"PIP_INDEX_URL": "x", "pip_pre": "1", "PYTHONPATH": "/p", "HOME": "/h", "https_proxy": "http://proxy"}
    isolated = pip.environment(environ, isolated=True, tmp="/t")
    assert {name: isolated[name] for name in isolated if name.upper().startswith("PIP")} == {
        "PIP_CONFIG_FILE": "/dev/null"
    }
    assert isolated["https_proxy"] == "http://proxy" and isolated["TMPDIR"] == "/t" and "PYTHONPATH" not in isolated
    assert pip.environment(environ, isolated=False, tmp="/t")["PIP_INDEX_URL"] == "x"


def test_lock_replaces_what_is_resolved() -> None:
    source = pip.Source("", "/s")
    lock = ("torch==2.13.0+cpu --hash=sha256:" + HASH,)
    assert pip.resolve_lines(WANTED, source, "/c")[2:] == ["--constraint /c", "torch==2.13.0+cpu"]
    locked = Wanted("2.13.0", "cpu", ("torch==2.13.0+cpu",), ("numpy<2",), lock)
    assert pip.resolve_lines(locked, source, "/c")[2:] == ["--require-hashes", *lock]


@pytest.mark.parametrize(
    "archive",
    [{"hash": "sha256=" + HASH}, {"hash": "sha256=" + HASH, "hashes": {"sha256": HASH}}, {"hashes": {"sha256": HASH}}],
)
def test_report_of_old_and_new_pip(archive: t.Dict[str, t.Any]) -> None:
    item = {
        "metadata": {"name": "Typing_Extensions", "version": "4.16.0"},
        "download_info": {"url": "file:///w/typing_extensions-4.16.0-py3-none-any.whl", "archive_info": archive},
    }
    (package,) = pip.read_report(json.dumps({"install": [item]}))
    assert package.line == "typing-extensions==4.16.0 --hash=sha256:" + HASH


def test_report_without_a_hash_is_refused() -> None:
    item = {
        "metadata": {"name": "x", "version": "1"},
        "download_info": {"url": "https://u:p@h/x.whl", "archive_info": {}},
    }
    with pytest.raises(EnvironmentFailure, match=r"x: https://u:\*\*\*\*@h/x.whl tells no SHA-256"):
        pip.read_report(json.dumps({"install": [item]}))


#: What ``pip config list`` printed on machines (pip 23.2.1), with other paths and a password.
SETTINGS = """\
:env:.cert='/etc/ssl/certs/ca-certificates.crt'
:env:.default-timeout='180'
:env:.find-links='/srv/wheels'
global.constraint='/etc/xdg/pip/constraints.txt'
global.extra-index-url='file:///srv/index/simple https://me:pw@mirror.example.invalid/simple'
"""


def test_settings_that_decide() -> None:
    assert pip.read_settings(SETTINGS) == {
        "PIP_FIND_LINKS": "/srv/wheels",
        "constraint": "/etc/xdg/pip/constraints.txt",
        "extra-index-url": "file:///srv/index/simple https://me:****@mirror.example.invalid/simple",
    }


@pytest.mark.parametrize(
    "url, setting",
    [
        ("file:///srv/wheels/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl", "PIP_FIND_LINKS = /srv/wheels"),
        ("file:///srv/index/files/torch-2.14.1-cp311.whl", "extra-index-url = file:///srv/index/simple"),
        (
            "https://mirror.example.invalid/files/torch-2.14.1.whl",
            "PIP_FIND_LINKS = /srv/wheels, constraint = /etc/xdg/pip/constraints.txt, extra-index-url = "
            "file:///srv/index/simple https://me:****@mirror.example.invalid/simple",
        ),
    ],
)
def test_setting_that_brought_a_wheel(url: str, setting: str) -> None:
    assert pip.bringer(url, pip.read_settings(SETTINGS)) == setting


#: pip's words, and what is said instead. Printed by pip 23.2.1 and 25.0.1.
NONE = "ERROR: Could not find a version that satisfies the requirement {} (from versions: {})\n"
START = "torch 2.13.0+cpu has no wheel for Python 3.9 on x86_64 at https://i.example.invalid; "
END = "choose another pytorch_base_python, another torch in the plan, or another pytorch_index_url"
COMPLAINTS = [
    (NONE.format("torch==2.13.0+cpu", "2.4.0, 2.8.0"), START + "found for this Python: 2.4.0, 2.8.0; " + END),
    (NONE.format("torch==9", "none"), START + "found: no torch at all; " + END),
    (
        "ERROR: Package 'torch' requires a different Python: 3.9.2 not in '>=3.10'\n",
        START + "it says Requires-Python >=3.10; " + END,
    ),
    ("Collecting x\n" + NONE.format("absent", "none"), NONE.format("absent", "none")[len("ERROR: ") : -1]),
]


@pytest.mark.parametrize("output, said", COMPLAINTS)
def test_resolution_failures(output: str, said: str) -> None:
    source = pip.Source("https://i.example.invalid", "/s")
    assert pip.resolution_failure(output, WANTED, source, "Python 3.9 on x86_64", {}) == said


def test_sizes_told() -> None:
    output = (
        "Collecting torch\n  Downloading torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl (191.8 MB)\n"
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    )
    assert pip.sizes_told(output).endswith("torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl (191.8 MB)")


def test_page_of_an_index() -> None:
    assert pip.page("https://u:p@i.example.invalid/cpu/") == "https://u:p@i.example.invalid/cpu/torch/"


#: What pip 26 prints, with the addresses shortened.
COMPLAINTS = {
    "a hash that is not the lock's": (
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated.\n"
        "    filelock==4.3.1 from https://i.example.invalid/filelock-4.3.1-py3-none-any.whl (from -r a.txt (line 1)):\n"
        "        Expected sha256 0000\n"
        "             Got        79e4\n\n",
        ["filelock==4.3.1 from", "Expected sha256 0000", "Got 79e4"],
    ),
    "a line that the lock lacks": (
        "ERROR: In --require-hashes mode, all requirements must have their versions pinned with ==. These do not:\n"
        "    MarkupSafe>=2.0 from https://i.example.invalid/m.whl (from jinja2==3.1.6->-r b.txt (line 1))\n",
        ["MarkupSafe>=2.0 from", "jinja2==3.1.6"],
    ),
    "a constraint of the machine": (
        "ERROR: Cannot install torch==2.15.0 because these package versions have conflicting dependencies.\n\n"
        "The conflict is caused by:\n"
        "    The user requested torch==2.15.0\n"
        "    The user requested (constraint) torch<=2.14.1\n\n"
        "To fix this you could try to:\n"
        "1. loosen the range of package versions you've specified\n",
        ["Cannot install torch==2.15.0", "(constraint) torch<=2.14.1"],
    ),
    "no error line": ("one\ntwo\nthree\nfour\n", ["two; three; four"]),
    "nothing": ("", ["pip said nothing"]),
}


@pytest.mark.parametrize("name", COMPLAINTS)
def test_a_complaint_names_the_package_and_both_sides(name: str) -> None:
    output, words = COMPLAINTS[name]
    said = pip.complaint(output)
    assert all(word in said for word in words), said
    assert "loosen" not in said and "\n" not in said
