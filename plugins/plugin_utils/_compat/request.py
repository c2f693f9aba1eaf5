# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked: the options of the lookup, checked and brought into one hashable record.

Every wrong option is named with what was found and what is needed, all at
once. A number where a version belongs is refused, because YAML reads the
unquoted 2.10 as 2.1.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import gpu

ARCHES = {"x86_64": "x86_64", "amd64": "x86_64", "x64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
ACCELERATORS = ("auto", "cuda", "cpu")
SOURCES = ("auto", "os", "nvidia")
KERNEL_MODULES = ("auto", "open", "proprietary")
POLICIES = ("auto", "keep", "external")
HEADERS = ("auto", "available", "missing")
#: Who may own the driver, as the observation says it.
OWNERS = (
    "",
    "nobody",
    "package",
    "runfile",
    "dgx_os",
    "bcm",
    "gpu_operator",
    "cloud_image",
    "vgpu_guest",
    "wsl",
    "container_guest",
    "image_os",
    "multiple",
    "unknown",
)
#: How distributions are called in os-release, by the names that Ansible's facts use.
OS_IDS = {
    "redhat": "rhel",
    "amazon": "amzn",
    "oraclelinux": "ol",
    "oracle": "ol",
    "suse": "sles",
    "opensuse leap": "opensuse-leap",
}
#: A version of the driver; the flavour and what a package adds may follow: 580.95.05-open, 535.261.03-1~deb12u1.
_DRIVER = re.compile(
    r"(?P<version>\d{3}(?:\.\d{1,3}){0,2})(?:[-_ ]?(?P<flavour>open|proprietary|closed|server))?(?:-\d[\w.+~]*)?", re.I
)
_CUDA = re.compile(r"(?:cu(?P<major>\d\d)(?P<minor>\d)|(?P<dotted>\d\d\.\d+))")
_PYTHON = re.compile(r"(?:cp)?(?P<major>3)\.?(?P<minor>\d{1,2})(?:\.\d+(?:(?:a|b|rc)\d+)?\+?)?(?P<free>t)?")
_NUMBERS = re.compile(r"\d+(\.\d+)*")


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """An option that cannot be used."""

    option: str
    found: str
    needs: str

    def __str__(self) -> str:
        return f"{self.option}: found {self.found}, needs {self.needs}"


class BadOptions(ValueError):
    """Options that cannot be used, all of them."""

    def __init__(self, problems: t.Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One host and what is wished for it. "" and None are "not known"; versions are text."""

    torch: str
    accelerator: str = "auto"
    os_id: str = ""
    os_version: str = ""
    arch: str = ""
    glibc: str = ""
    kernel: str = ""
    compiler: str = ""
    virtualization: str = ""
    python: str = ""
    gpus: tuple[gpu.Wish, ...] = ()
    hidden_by: str = ""
    nvswitch: int | None = None
    driver: str = ""
    driver_flavour: str = ""
    driver_owner: str = ""
    driver_policy: str = "auto"
    driver_source: str = "auto"
    cuda: str = "auto"
    kernel_module: str = "auto"
    forward_compat: bool = False
    secure_boot: bool | None = None
    mok_enrolled: bool = False
    headers: str = "auto"
    fabric_manager: str = ""


#: The names that ``request`` takes, besides ``torch``.
OPTIONS = tuple(field.name for field in dataclasses.fields(Request) if field.name != "torch")


def request(torch: t.Any, options: t.Mapping[str, t.Any]) -> Request:
    """The checked form of what a caller gave. BadOptions where anything of it cannot be used."""
    reader = _Reader(options)
    values: dict[str, t.Any] = {
        "torch": reader.version_text("torch", torch) or "latest",
        "accelerator": reader.choice("accelerator", ACCELERATORS, "auto"),
        "os_version": reader.version_text("os_version", options.get("os_version")),
        "glibc": reader.numbers("glibc"),
        "kernel": reader.text("kernel"),
        "compiler": reader.text("compiler"),
        "virtualization": reader.text("virtualization").lower(),
        "hidden_by": reader.text("hidden_by"),
        "driver_owner": reader.choice("driver_owner", OWNERS, ""),
        "driver_source": reader.choice("driver_source", SOURCES, "auto"),
        "kernel_module": reader.choice("kernel_module", KERNEL_MODULES, "auto"),
        "headers": reader.choice("headers", HEADERS, "auto"),
        "fabric_manager": reader.numbers("fabric_manager"),
        "forward_compat": reader.truth("forward_compat") or False,
        "mok_enrolled": reader.truth("mok_enrolled") or False,
        "secure_boot": reader.truth("secure_boot"),
        "gpus": reader.gpus(),
        "nvswitch": reader.count("nvswitch"),
        "arch": reader.arch(),
        "python": reader.python(),
        "cuda": reader.cuda(),
        "driver_policy": reader.policy(),
    }
    os_id = reader.text("os_id").lower()
    values["os_id"] = OS_IDS.get(os_id, os_id)
    values["driver"], flavour = reader.driver()
    stated = reader.choice("driver_flavour", ("", "open", "proprietary"), "")
    values["driver_flavour"] = stated or flavour
    unknown = sorted(set(options) - set(OPTIONS))
    reader.problems += [
        Problem(name, "an option that there is not", "one of " + ", ".join(OPTIONS)) for name in unknown
    ]
    if reader.problems:
        raise BadOptions(reader.problems)
    return Request(**values)


class _Reader:
    """Reads options one by one and keeps what is wrong with them."""

    def __init__(self, options: t.Mapping[str, t.Any]) -> None:
        self.options = options
        self.problems: list[Problem] = []

    def bad(self, option: str, found: t.Any, needs: str) -> None:
        self.problems.append(Problem(option, repr(found), needs))

    def text(self, option: str) -> str:
        value = self.options.get(option)
        if value is None:
            return ""
        if isinstance(value, str):
            return value.strip()
        self.bad(option, value, "text")
        return ""

    def version_text(self, option: str, value: t.Any) -> str:
        if value is None:
            return ""
        if isinstance(value, float):
            # A number of one digit after the point may have lost a zero on its way through YAML.
            or_lost = f", or '{value}0'" if re.fullmatch(r"\d+\.[1-9]", str(value)) else ""
            self.bad(option, value, f"quotes, '{value}'{or_lost}: unquoted it is a number, and YAML reads 2.10 as 2.1")
            return ""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str):
            return value.strip()
        self.bad(option, value, "a version as text")
        return ""

    def numbers(self, option: str) -> str:
        value = self.version_text(option, self.options.get(option))
        if value and not _NUMBERS.fullmatch(value):
            self.bad(option, value, "a version of numbers and points")
            return ""
        return value

    def choice(self, option: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.text(option).lower()
        if not value:
            return default
        if value not in allowed:
            self.bad(option, value, "one of " + ", ".join(choice for choice in allowed if choice))
            return default
        return value

    def truth(self, option: str) -> bool | None:
        value = self.options.get(option)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word in ("true", "yes", "on", "1", "enabled"):
            return True
        if word in ("false", "no", "off", "0", "disabled", "not_applicable"):
            return False
        if word not in ("", "unknown", "auto"):
            self.bad(option, value, "true or false")
        return None

    def count(self, option: str) -> int | None:
        value = self.options.get(option)
        if value is None or value in ("auto", ""):
            return None
        try:
            number = int(value) if not isinstance(value, (bool, float)) else -1
        except (TypeError, ValueError):
            number = -1
        if number < 0:
            self.bad(option, value, "auto or a whole number, 0 or more")
            return None
        return number

    def arch(self) -> str:
        value = self.text("arch").lower()
        if value and value not in ARCHES:
            self.bad("arch", value, "x86_64 or aarch64: torch has CUDA builds for no other")
            return ""
        return ARCHES.get(value, "")

    def python(self) -> str:
        value = self.version_text("python", self.options.get("python"))
        match = _PYTHON.fullmatch(value)
        if value and not match:
            self.bad("python", value, "a Python such as '3.12' or '3.13t'")
        return f"{match['major']}.{match['minor']}{match['free'] or ''}" if match else ""

    def cuda(self) -> str:
        value = self.version_text("cuda", self.options.get("cuda")).lower()
        if value in ("", "auto"):
            return "auto"
        match = _CUDA.fullmatch(value)
        if not match:
            self.bad("cuda", value, "auto, a version such as '12.8', or a build such as cu128")
            return "auto"
        return match["dotted"] or f"{match['major']}.{match['minor']}"

    def policy(self) -> str:
        value = self.version_text("driver_policy", self.options.get("driver_policy")).lower() or "auto"
        if value not in POLICIES and not re.fullmatch(r"\d{3}", value):
            self.bad("driver_policy", value, "auto, keep, external, or a branch such as '580'")
            return "auto"
        return value

    def driver(self) -> tuple[str, str]:
        value = self.version_text("driver", self.options.get("driver")).lower()
        if value in ("", "none"):
            return "", ""
        match = _DRIVER.fullmatch(value)
        if not match:
            self.bad("driver", value, "the installed version such as '580.95.05', or '' for none")
            return "", ""
        flavour = match["flavour"] or ""
        return match["version"], {"closed": "proprietary", "server": ""}.get(flavour, flavour)

    def gpus(self) -> tuple[gpu.Wish, ...]:
        value = self.options.get("gpus")
        if value is None:
            return ()
        items = [value] if isinstance(value, (str, dict)) else value
        if not isinstance(items, (list, tuple)):
            self.bad("gpus", value, "a list of product names, PCI ids, or name and compute_capability")
            return ()
        return tuple(wish for item in items if (wish := self._gpu(item)))

    def _gpu(self, item: t.Any) -> gpu.Wish | None:
        if isinstance(item, str):
            return gpu.Wish(item.strip())
        if isinstance(item, int) and not isinstance(item, bool):
            return gpu.Wish(str(item))
        if isinstance(item, dict) and set(item) <= {"name", "compute_capability"}:
            name, capability = item.get("name"), item.get("compute_capability")
            if isinstance(name, (str, type(None))) and isinstance(capability, (str, int, float, type(None))):
                number = f"{capability}.0" if isinstance(capability, int) else str(capability or "")
                return gpu.Wish((name or "").strip(), number)
        self.bad("gpus", item, "a product name, a PCI id, or {name, compute_capability}")
        return None
