# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity`: every test of it, on a copy, with no ignore file of ours."""

from __future__ import annotations

import os
import sys
import typing as t
from pathlib import Path

#: ansible-test fetches this file from outside the package index for its environments. pip is at hand in them as
#: ensurepip, which is asked for the same; the two options are of older Pythons.
GET_PIP = """
import runpy, subprocess, sys
subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"], stdout=subprocess.DEVNULL)
sys.argv = ["pip", "install"] + [a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def test_sanity(gate: t.Callable[..., t.Any], copy: Path, tmp_path: Path, interpreters: dict[str, str]) -> None:
    assert not list(copy.glob("tests/sanity/ignore*"))
    cached = tmp_path / ".ansible" / "test" / "cache" / "get_pip_24_2.py"
    cached.parent.mkdir(parents=True)
    cached.write_text(GET_PIP, encoding="utf-8")
    # ansible-test compiles and imports with every Python it finds, at half a minute each: the oldest of a host, this
    # one and a newest, as in tests/unit/test_pythons.py. Other folders with Pythons are a version manager's.
    folder = tmp_path / "bin"
    folder.mkdir()
    for version in {"3.8", "3.13", f"3.{sys.version_info[1]}"} & set(interpreters):
        (folder / f"python{version}").symlink_to(interpreters[version])
    own = [Path(sys.prefix) / "bin", Path("/usr/bin"), Path("/bin")]
    rest = [path for path in map(Path, os.get_exec_path()) if path in own or not list(path.glob("python3*"))]
    done = gate(
        *("ansible-test", "sanity", "--venv", "--color", "no"),
        cwd=copy,
        timeout=1800,
        # A home of its own keeps the stand-in out of the user's, whose pip settings still hold.
        HOME=str(tmp_path),
        XDG_CONFIG_HOME=os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config"),
        PATH=os.pathsep.join(map(str, [folder, *rest])),
    )
    assert 'Running sanity test "validate-modules"' in done.stdout + done.stderr
