# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the toolkit there that the wheel was built with, and does it compile? For those who compile. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

Facts = t.Mapping[str, t.Any]

#: The line that says why, among those that only tell where.
_WHY = re.compile(
    r"(unsupported GNU version!.*|fatal error: .*|error\s*:.*|.*[Uu]nsupported gpu architecture.*|.*: not found"
    r"|.*No such file or directory|.*cannot execute.*|Failed to preprocess host compiler.*)"
)
_NO_COMPILER = re.compile(r"\b(?:gcc|g\+\+|cc1plus|c\+\+|host compiler)\b.*|.*\bPATH\b.*")


def chosen(toolkits: t.Sequence[Facts], wanted: str) -> t.Optional[Facts]:
    """The toolkit of that version, an environment's own first; without a wish the newest; None where there is none."""
    fit = [one for one in toolkits if one["version"] and (not wanted or one["version"] == wanted)]
    return max(fit, key=_order, default=None)


def _order(one: Facts) -> t.Tuple[t.List[int], bool]:
    return [int(part) for part in one["version"].split(".")], one["packaged"] == "wheels"


def toolkit(toolkits: t.Sequence[Facts], wanted: str, link: str, asked: str) -> t.List[Finding]:
    """``cuda-toolkit``: the planned one is there. ``cuda-link``: where ``/usr/local/cuda`` leads, which is left alone.

    ``asked``: ``packages`` or ``pip``, where it should come from.
    """
    there = ", ".join(f"{one['version'] or 'one that does not start'} in {one['path']}" for one in toolkits)
    one = chosen(toolkits, wanted)
    if one is None:
        why = "the wheels of CUDA 12 hold no nvcc: cuda_from: packages" if _old(wanted) and asked == "pip" else ""
        return [
            Finding(
                "cuda-toolkit",
                "fail",
                found=there or "no toolkit",
                expected=f"toolkit {wanted}" if wanted else "a toolkit",
                action="fix configuration",
                reason=why or "cuda_packages: true installs it",
            )
        ]
    found = [Finding("cuda-toolkit", "ok", found=there, expected=f"toolkit {wanted}" if wanted else "a toolkit")]
    if link and one["packaged"] == "host" and link != one["path"]:
        found.append(
            Finding(
                "cuda-link",
                "warn",
                found=f"/usr/local/cuda leads to {link}",
                expected=f"{one['path']}, or CUDA_HOME={one['path']} where something is compiled for torch",
                policy="report",
                reason="others may count on the link: it is left as it is (update-alternatives --config cuda)",
            )
        )
    return found


def _old(wanted: str) -> bool:
    return wanted.split(".", 1)[0] in ("11", "12")


def compiles(result: Facts, where: str, architectures: t.Sequence[str]) -> Finding:
    """``cuda-compiles``: what nvcc made of a kernel, with the compiler's line that says why not."""
    kinds = f" for compute capability {', '.join(sorted({*architectures}))}" if architectures else ""
    if result["ok"]:
        return Finding("cuda-compiles", "ok", found=f"nvcc of {where} compiles a kernel{kinds}")
    why = next((match.group(1) for match in map(_WHY.search, result["lines"]) if match), result["problem"])
    reason = "another host compiler, or a newer toolkit of the same CUDA" if "GNU" in why else ""
    if "architecture" in why:
        reason = "this toolkit does not compile for these GPUs: the plan names one that does"
    if "No such file" in why or "not found" in why or "preprocess host compiler" in why:
        reason = "cuda_compiler: true installs gcc and g++" if _NO_COMPILER.search(why) else ""
    return Finding(
        "cuda-compiles",
        "fail",
        found=f"nvcc of {where}: {why.strip()}",
        expected=f"a kernel that compiles{kinds}",
        action="fix configuration",
        reason=reason,
        evidence={"lines": list(result["lines"]), "problem": result["problem"]},
    )


def headers(found: Facts, python: str) -> Finding:
    """``python-headers``: torch.compile and extensions include Python.h of the environment's interpreter."""
    if found["there"]:
        return Finding("python-headers", "ok", found=found["path"])
    return Finding(
        "python-headers",
        "fail",
        found=f"{python} does not tell: {found['problem']}" if found["problem"] else f"{found['path']} is not there",
        expected="the header files of the environment's Python",
        action="fix configuration",
        reason="cuda_compiler: true installs those of the system's Python; of another, name them in"
        " cuda_compiler_packages (python3.12-dev)",
    )
