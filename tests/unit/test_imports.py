# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may import what: the table of docs/architecture.md against the code."""

from __future__ import annotations

import ast
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted((ROOT / "plugins").glob("**/*.py"))
COLLECTION = "ansible_collections.gpufleet.pytorch"
UTILS = f"{COLLECTION}.plugins.module_utils"
CONTROLLER_UTILS = f"{COLLECTION}.plugins.plugin_utils"

#: Modules of the standard library that a Python between 3.8 and 3.14 lacks.
NOT_EVERYWHERE = frozenset(
    """aifc annotationlib asynchat asyncore audioop binhex cgi cgitb chunk compression crypt distutils formatter
    graphlib imghdr imp lib2to3 mailcap msilib nis nntplib ossaudiodev parser pipes smtpd sndhdr spwd sunau symbol
    telnetlib tomllib uu xdrlib zoneinfo""".split()
)
HOST_STDLIB = sys.stdlib_module_names - NOT_EVERYWHERE


class Row(t.NamedTuple):
    """One row of the table: below `folder`, top-level modules `stdlib` and what begins with one of `allowed`."""

    folder: str
    stdlib: frozenset[str]
    allowed: tuple[str, ...]
    #: Third-party modules that may be imported where the import's failure is handled.
    guarded: tuple[str, ...] = ()


#: The most special folder comes first and holds.
TABLE = (
    Row("modules", HOST_STDLIB, ("ansible.module_utils", UTILS), ("pynvml",)),
    # The worker runs in the environment that is proved, whose torch it is about.
    Row("module_utils/_matmul", HOST_STDLIB, (UTILS,), ("torch",)),
    Row("module_utils", HOST_STDLIB, (UTILS,), ("pynvml",)),
    Row("plugin_utils/_compat", sys.stdlib_module_names, ("yaml", "packaging", UTILS, f"{CONTROLLER_UTILS}._compat")),
    Row("plugin_utils/_report", sys.stdlib_module_names, ("jinja2", "yaml", UTILS, f"{CONTROLLER_UTILS}._report")),
    Row("plugin_utils", sys.stdlib_module_names, ("yaml", UTILS, CONTROLLER_UTILS)),
    Row("lookup", sys.stdlib_module_names, ("yaml", "ansible", UTILS, CONTROLLER_UTILS)),
    Row("action", sys.stdlib_module_names, ("yaml", "ansible", UTILS, CONTROLLER_UTILS)),
    Row("filter", sys.stdlib_module_names, ("yaml", "ansible", UTILS, CONTROLLER_UTILS)),
    Row("doc_fragments", frozenset(), ()),
)


class Import(t.NamedTuple):
    line: int
    name: str
    guarded: bool


def imports(tree: ast.Module, package: str) -> t.Iterator[Import]:
    """Every import statement of a file, at whatever depth, by full name; relative ones from `package`."""
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, id(node) in guarded)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            # `from package import module` imports the module.
            for alias in node.names:
                yield Import(node.lineno, f"{source}.{alias.name}", id(node) in guarded)


def below(name: str, parents: t.Iterable[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def refused(row: Row, source: str, package: str) -> list[str]:
    """The imports of a file that its row does not allow."""
    return [
        f"{found.line}: {found.name}"
        for found in imports(ast.parse(source), package)
        if found.name.split(".", 1)[0] not in row.stdlib | {"__future__"}
        and not below(found.name, row.allowed)
        and not (found.guarded and below(found.name, row.guarded))
    ]


def row_of(path: Path) -> Row:
    inside = path.relative_to(ROOT / "plugins").as_posix()
    for row in TABLE:
        if inside.startswith(f"{row.folder}/"):
            return row
    raise LookupError(f"plugins/{inside} is in no row of the table")


@pytest.mark.parametrize(
    ("folder", "source", "expected"),
    [
        ("module_utils", "import json, os.path", []),
        ("module_utils", "import yaml", ["1: yaml"]),
        ("module_utils", "import tomllib", ["1: tomllib"]),
        ("module_utils", "from ansible.module_utils.basic import AnsibleModule", None),
        ("module_utils", "from . import _finding", []),
        ("module_utils", "from ..plugin_utils import _compat", None),
        ("module_utils", "try:\n    import pynvml\nexcept ImportError:\n    pynvml = None", []),
        ("module_utils", "import pynvml", ["1: pynvml"]),
        ("module_utils", "try:\n    pass\nexcept ImportError:\n    import pynvml", ["4: pynvml"]),
        ("modules", "from ansible.module_utils.basic import AnsibleModule", []),
        ("modules", "from ansible.errors import AnsibleError", None),
        ("modules", "def f():\n    import torch", ["2: torch"]),
        ("plugin_utils/_compat", "import yaml", []),
        ("plugin_utils/_compat", "from ansible.errors import AnsibleError", None),
        ("plugin_utils/_report", f"from {CONTROLLER_UTILS}._compat import data", None),
        ("lookup", "from ansible.errors import AnsibleError", []),
        ("lookup", f"from {COLLECTION}.plugins.modules import gpu_info", None),
    ],
)
def test_the_rule_itself(folder: str, source: str, expected: list[str] | None) -> None:
    row = next(row for row in TABLE if row.folder == folder)
    found = refused(row, source, f"{COLLECTION}.plugins.{folder.replace('/', '.')}")
    assert found if expected is None else found == expected


@pytest.mark.parametrize(
    "path", sorted((ROOT / "plugins").glob("**/*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_plugin_imports_what_its_row_allows(path: Path) -> None:
    package = ".".join([COLLECTION, *path.relative_to(ROOT).parent.parts])
    assert refused(row_of(path), path.read_text(encoding="utf-8"), package) == []


#: Imports every module_utils file and prints what the interpreter did beside reading code.
WATCH = """
import importlib, sys
names, seen = sys.argv[1:], []

def watch(event, arguments):
    if event == "open":
        path = str(arguments[0])
        if path.endswith((".py", ".pyc", ".so", ".zip", "pyvenv.cfg")):  # what an import itself opens
            return
        seen.append(f"opens {path}")
    elif event == "ctypes.dlopen" and arguments[0] is None:  # the program itself, by ctypes' own import
        return
    elif event.startswith(("subprocess.", "socket.", "os.system", "os.exec", "os.fork", "os.posix", "ctypes.dlopen")):
        seen.append(f"{event} {arguments!r}")

sys.addaudithook(watch)
for name in names:
    before = len(seen)
    importlib.import_module(name)
    for event in seen[before:]:
        print(f"{name}: {event}")
"""


def test_module_utils_do_nothing_at_import() -> None:
    folder = ROOT / "plugins" / "module_utils"
    names = [
        ".".join([UTILS, *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")
        for path in sorted(folder.glob("**/*.py"))
    ]
    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCH, *names],
        env={"PYTHONPATH": str(ROOT / "collections"), "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
