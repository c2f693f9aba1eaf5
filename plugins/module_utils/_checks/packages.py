# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the state of the driver's packages and kernel modules means. Facts in, Findings out, pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

Available = t.Mapping[str, t.Sequence[str]]
#: Names that a person reads before the rest is counted.
SHOWN = 8


class BuiltModule(t.Protocol):
    """The nvidia module on disk: see _packages.kernels.Module."""

    @property
    def path(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def built_for(self) -> str: ...

    @property
    def missing(self) -> t.Sequence[str]: ...

    @property
    def compilers(self) -> t.Sequence[str]: ...


def _short(names: t.Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def busy(users: t.Sequence[str]) -> Finding:
    """Somebody computes: nothing is changed under a running job."""
    return Finding(
        "driver-busy",
        "fail",
        found=f"in use by {_short(users)}",
        expected="no process and no job on the GPUs while the driver changes",
        reason="drain the host and run again, or set driver_when_busy: proceed, which breaks what runs",
        evidence={"users": list(users)},
    )


def owner(owners: t.Sequence[t.Mapping[str, str]], name: str, action: str) -> Finding:
    """The driver is somebody else's."""
    return Finding(
        "driver-owned-elsewhere",
        "fail",
        found=f"owner {name}: {'; '.join(claim['evidence'] for claim in owners) or 'no trace of who installed it'}",
        expected=f"a driver of packages, or none, for the action {action}",
        action="fix configuration",
        reason="a driver that is not ours is never touched; set driver_policy: external to prove it as it is",
    )


def interrupted(left: t.Sequence[str], by_hand: str) -> Finding:
    """The package manager was stopped in the middle of its work."""
    return Finding(
        "packages-interrupted",
        "fail",
        found=_short(left),
        expected="packages that are whole",
        action="fix configuration",
        reason=f"a change of the driver repairs this first; by hand: {by_hand}",
    )


def not_available(plan: t.Mapping[str, t.Any], wanted: t.Sequence[str], available: Available) -> Finding:
    """No source has the planned version: tell what they have."""
    offers = [f"{name} {', '.join(versions)}" for name, versions in sorted(available.items())]
    return Finding(
        "driver-not-available",
        "fail",
        found=f"the package sources of this host have {'; '.join(offers) or 'none of them'}",
        expected=f"{', '.join(wanted)} of driver {plan.get('version') or plan['branch']}",
        action="fix configuration",
        reason="enable the source or its mirror, or wish for another branch with driver_policy",
    )


def headers(lacking: t.Mapping[str, str], have: t.Sequence[str]) -> Finding:
    """The module is built from headers that nobody carries any more: common where a host was not updated for long."""
    return Finding(
        "headers-unavailable",
        "fail",
        found=f"no package {', '.join(lacking.values())}; headers here: {', '.join(have) or 'none'}",
        expected=f"headers of kernel {', '.join(lacking)}",
        action="fix configuration",
        reason="boot the newest kernel of the distribution, whose headers it has, and run again; nothing was changed",
        evidence={"kernels": sorted(lacking)},
    )


def removes(names: t.Sequence[str]) -> Finding:
    """The package manager would remove what has nothing to do with the driver."""
    return Finding(
        "driver-removes-packages",
        "fail",
        found=f"the change would remove {_short(names)}",
        expected="a change that removes packages of the driver only",
        action="fix configuration",
        reason="remove them yourself where they may go, then run again; nothing was changed",
        evidence={"packages": list(names)},
    )


def no_prebuilt(lacking: t.Mapping[str, str]) -> Finding:
    """The distribution builds and signs modules for its own kernels, and for each only as long as it is current."""
    return Finding(
        "driver-module",
        "fail",
        found=f"no package {', '.join(lacking.values())}",
        expected=f"modules that the distribution built and signed for kernel {', '.join(lacking)}",
        action="fix configuration",
        reason="boot the newest kernel of the distribution and run again; nothing was changed",
        evidence={"kernels": sorted(lacking)},
    )


def module(
    kernel: str, version: str, built: t.Optional[BuiltModule], log: str, error: str, prebuilt: bool = False
) -> Finding:
    """The module of one kernel: there and whole, of this version, built for this kernel and by its compiler."""
    expected = f"module nvidia {version} for kernel {kernel}"
    other = "" if built is None else _other_compiler(built.compilers)
    right = built is not None and built.version == version and built.built_for == kernel
    if built is not None and right and not built.missing and not other:
        return Finding("driver-module", "ok", found=expected, expected=expected, evidence={"path": built.path})
    if built is None:
        found = f"none was built{': ' + error if error else ''}"
    elif built.built_for != kernel:
        found = f"{built.path} is for kernel {built.built_for or 'unknown'}"
    elif built.version != version:
        found = f"{built.path} is version {built.version or 'unknown'}"
    elif built.missing:
        found = f"only a part was built, without {_short(built.missing)}{': ' + error if error else ''}"
    else:
        found = f"{built.path} was built by {other}"
    if prebuilt:
        return Finding(
            "driver-module",
            "fail",
            found=found if built else "none is installed",
            expected=expected,
            action="fix configuration",
            reason="the archive's modules and libraries are of two versions: boot its newest kernel, or wait for it",
            evidence={"kernel": kernel, "driver": version, "log": "", "error": ""},
        )
    return Finding(
        "dkms-not-built",
        "fail",
        found=found,
        expected=expected,
        action="fix configuration",
        reason="take a driver that knows this kernel (driver_policy: a newer branch; driver_source: nvidia), or one"
        f" of the kernels that this driver knows{'; the log of the build is ' + log if log else ''}",
        evidence={"kernel": kernel, "driver": version, "log": log, "error": error},
    )


def _other_compiler(compilers: t.Sequence[str]) -> str:
    """``gcc 11.4.0, and the kernel by gcc 12.3.0`` where the two are of unlike majors."""
    if len(compilers) < 2 or compilers[0].split(".", 1)[0] == compilers[1].split(".", 1)[0]:
        return ""
    return f"{compilers[0]}, and the kernel by {compilers[1]}"


def boot_space(free: int, needed: int) -> Finding:
    """A half-written initramfs is a host that does not start."""
    return Finding(
        "boot-space",
        "fail",
        found=f"{free >> 20} MiB free in /boot",
        expected=f"{needed >> 20} MiB, for one more copy of the largest initramfs",
        action="fix configuration",
        reason="remove kernels that are not needed (apt-get autoremove --purge, dnf remove --oldinstallonly);"
        " nothing was changed",
    )


def package_run(problem: str) -> Finding:
    """apt or dnf ended otherwise than well."""
    return Finding(
        "driver-packages",
        "fail",
        found=problem,
        expected="the planned packages installed",
        action="fix configuration",
    )


def held(version: str, packages: t.Sequence[t.Tuple[str, bool]]) -> Finding:
    """Every package of the driver's version stays where it is, whoever upgrades."""
    loose = [name for name, is_held in packages if not is_held]
    return Finding(
        "driver-packages",
        "warn" if loose else "ok",
        found=f"driver {version}: {len(packages)} packages"
        + (f", not held: {_short(loose)}" if loose else ", all held"),
        expected="every package of the driver's version held against upgrades",
        action="fix configuration" if loose else "none",
        reason="an upgrade by hand or by unattended-upgrades replaces the libraries under the loaded module"
        if loose
        else "",
        evidence={"packages": [name for name, _is_held in packages]},
    )


def reboot(loaded: str, installed: str, nouveau: bool) -> Finding:
    """The new module is on disk and another one, or none, is loaded."""
    nothing = "nouveau is loaded and holds the GPUs" if nouveau else "no nvidia module is loaded"
    return Finding(
        "driver-reboot",
        "fail",
        found=f"module {loaded} is loaded" if loaded else nothing,
        expected=f"module {installed} loaded",
        action="reboot",
        reason="set driver_reboot: true to let the role restart the host, or restart it and run again",
    )


def doubled(entries: t.Sequence[str]) -> Finding:
    """A user's entry of the repository that ours names too: it stays, and its settings hold beside ours."""
    return Finding(
        "repository-doubled",
        "warn",
        found=_short(entries),
        expected="one entry of NVIDIA's repository",
        action="fix configuration",
        reason="remove it or switch it off: it may trust another key, or let in what the module's stream keeps out",
    )


def library(part: str, packages: t.Mapping[str, str], held: bool = True) -> Finding:
    """What those who compile find on the host."""
    found = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
    return Finding(
        f"{part}-packages",
        "ok",
        found=found,
        expected="the planned packages, held" if held else "these packages",
    )


def library_not_available(part: str, names: t.Sequence[str], available: Available) -> Finding:
    """The repository has other versions than the wheel was built with."""
    offers = [f"{name} {_short(list(versions))}" for name, versions in sorted(available.items())]
    return Finding(
        f"{part}-packages",
        "fail",
        found=f"the package sources of this host have {'; '.join(offers) or 'none of them'}",
        expected=", ".join(names),
        action="fix configuration",
        reason="use a mirror that keeps this version, or another build of torch; nothing was changed",
    )
