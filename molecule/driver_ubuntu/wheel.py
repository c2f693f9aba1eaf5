# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for torch: a wheel that says which build it is, and a page of an index that names it."""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

folder, version, cuda = Path(sys.argv[1]) / "torch", sys.argv[2], sys.argv[3]
folder.mkdir(parents=True)
info = f"torch-{version}.dist-info"
content = {
    "torch/__init__.py": "",
    "torch/version.py": f"__version__ = '{version}'\ncuda: Optional[str] = '{cuda}'\n",
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
name = f"torch-{version}-py3-none-any.whl"
with zipfile.ZipFile(folder / name, "w") as archive:
    lines = []
    for member, text in content.items():
        archive.writestr(member, text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{member},sha256={digest},{len(text)}\n")
    archive.writestr(f"{info}/RECORD", "".join([*lines, f"{info}/RECORD,,\n"]))
(folder / "index.html").write_text(f'<a href="{name.replace("+", "%2B")}">{name}</a>')
