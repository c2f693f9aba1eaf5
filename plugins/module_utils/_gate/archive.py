# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate as one file: a zipapp of the modules that it imports, with bytecode of the Python that runs it."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import typing as t
import zipfile

COLLECTION = "ansible_collections.gpufleet.pytorch"
#: 1 is "not ready", which nothing says that cannot even begin.
MAIN = """import os, sys
try:
    from {} import main
    from installed import INSTALLED
except Exception as error:
    os.write(2, "gpufleet-gate: {{}}: {{}}\\n".format(type(error).__name__, error).encode())
    sys.exit(2)
sys.exit(main(sys.argv[1:], INSTALLED))
"""
#: Before any module: the interpreter, without the caller's variables, folders and site-packages (-I, -S).
SHEBANG = "#!{} -ISB\n"
#: Runs in a candidate for the gate's interpreter: what its bytecode depends on, nothing where it is too old.
TAG = """
import sys, importlib.util
sys.exit(print(sys.implementation.cache_tag, importlib.util.MAGIC_NUMBER.hex()) if sys.version_info >= (3, 8) else 1)
"""
#: Runs in the gate's interpreter: a zip of sources in, the same with bytecode beside each out. The bytecode is taken
#: without a look at the source's time, which a zip does not keep well enough.
COMPILE = """
import io, marshal, struct, sys, zipfile, importlib.util
source = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))
made = io.BytesIO()
with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
    for entry in source.infolist():
        text = source.read(entry)
        target.writestr(entry, text)
        code = compile(text, entry.filename, "exec", dont_inherit=True, optimize=0)
        head = importlib.util.MAGIC_NUMBER + struct.pack("<I", 1) + bytes(8)
        if entry.filename != "__main__.py":
            target.writestr(zipfile.ZipInfo(entry.filename + "c"), head + marshal.dumps(code))
sys.stdout.buffer.write(made.getvalue())
"""
#: The same for one file, as a folder's __pycache__ holds it.
COMPILE_ONE = """
import marshal, struct, sys, importlib.util
code = compile(sys.stdin.buffer.read(), "pynvml.py", "exec", dont_inherit=True, optimize=0)
sys.stdout.buffer.write(importlib.util.MAGIC_NUMBER + struct.pack("<I", 1) + bytes(8) + marshal.dumps(code))
"""


def closure(source_of: t.Callable[[str], str], start: str) -> t.Dict[str, str]:
    """Name and source of every module of ours that the gate imports, at whatever depth, and of their packages."""
    found: t.Dict[str, str] = {}
    todo = [start]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found[name] = source_of(name)
        todo += [".".join(name.split(".")[:end]) for end in range(1, name.count(".") + 1)]
        for node in ast.walk(ast.parse(found[name])):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(COLLECTION):
                todo += [str(node.module)]
                todo += [f"{node.module}.{alias.name}" for alias in node.names if _is_module(node.module, alias.name)]
    return found


def _is_module(package: t.Optional[str], name: str) -> bool:
    try:
        return importlib.util.find_spec(f"{package}.{name}") is not None
    except (ImportError, ValueError):
        return False


def source_of(name: str) -> str:
    """The source of a module of ours, from its loader: also out of Ansible's zip. A package of no code is empty."""
    spec = importlib.util.find_spec(name)
    loader = spec.loader if spec else None
    if spec is None:
        raise RuntimeError(f"{name} cannot be found")
    if spec.submodule_search_locations is not None:
        return ""
    if loader is None or not hasattr(loader, "get_source"):
        raise RuntimeError(f"the loader of {name} gives no source")
    return t.cast("t.Any", loader).get_source(name) or ""


def sources(start: str, installed: t.Mapping[str, t.Any]) -> t.Dict[str, str]:
    """Path and text of every entry of the archive but the bytecode."""
    modules = closure(source_of, start)
    packages = {name.rpartition(".")[0] for name in modules}
    entries = {
        name.replace(".", "/") + ("/__init__.py" if name in packages else ".py"): text for name, text in modules.items()
    }
    entries["__main__.py"] = MAIN.format(start)
    entries["installed.py"] = f"import json\nINSTALLED = json.loads({json.dumps(dict(installed), sort_keys=True)!r})\n"
    return entries


def pack(entries: t.Mapping[str, str]) -> bytes:
    """The entries as a zip, the same for the same entries."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entries[name])
    return made.getvalue()


def unpack(data: bytes) -> t.Tuple[str, t.Dict[str, str], t.Set[str]]:
    """First line, sources and names of bytecode of an archive. Raises ValueError where it is none."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if archive.testzip() is not None:
                raise ValueError("damaged")
            names = archive.namelist()
            entries = {name: archive.read(name).decode("utf-8") for name in names if name.endswith(".py")}
    except (zipfile.BadZipFile, UnicodeDecodeError, EOFError) as error:
        raise ValueError(str(error)) from None
    return data.split(b"\n", 1)[0].decode("utf-8", "replace"), entries, {n for n in names if n.endswith(".pyc")}
