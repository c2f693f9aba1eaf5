# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what a host has and what is wanted to the files that change. Pure: files come in and go out as text."""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import conf, shapes, tree
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.choose import (
    Choice,
    Named,
    Read,
    choose,
    theirs,
)

FILE = "/etc/gpufleet/nccl-topology.xml"
PROFILE = "/etc/profile.d/gpufleet-topology.sh"
SCRIPT = "/usr/local/lib/gpufleet/clear_acs.py"
UNIT = "/etc/systemd/system/gpufleet-acs.service"
WANTS = "/etc/systemd/system/multi-user.target.wants/gpufleet-acs.service"
MARK = "Written by the role gpufleet.pytorch.topology"
ENVIRONMENT = "/etc/environment"
#: Whole files of ours in folders of others: such a file without our mark is somebody's own.
MARKED = (PROFILE, UNIT)
SHOWN = 4

Facts = t.Mapping[str, t.Any]


def unit(python: str) -> str:
    """The boot unit: before anybody starts work on GPUs. It needs no daemon-reload, as it runs at the next start."""
    return f"""# {MARK}
[Unit]
Description=Clear access control services of the bridges around GPUs
Before=slurmd.service docker.service containerd.service crio.service kubelet.service
ConditionVirtualization=no

[Service]
Type=oneshot
ExecStart={python} -I {SCRIPT}
RemainAfterExit=yes

[Install]
WantedBy=multi-user.target
"""


class Change(t.NamedTuple):
    """A file as it is to be: ``text`` None is "not there"; a ``link`` has its target there."""

    path: str
    before: t.Optional[str]
    text: t.Optional[str]
    link: bool = False


@dataclass(frozen=True)
class Wish:
    """What the user wants; see the module's options."""

    shape: str = "auto"
    environment: t.Mapping[str, t.Optional[str]] = field(default_factory=dict)
    files: t.Sequence[str] = ()
    replace: bool = False
    clear_acs: bool = False


def replaced(wish: Wish, clear_acs: bool) -> Wish:
    """The wish with what this host can have of it: a virtual machine and a container have no ACS of their own."""
    return dataclasses.replace(wish, clear_acs=clear_acs)


@dataclass(frozen=True)
class Host:
    """What the host has. ``texts`` are the files that may hold variables, by path; absent ones are not in it."""

    seen: Facts
    topology: Facts
    virtual: str
    plugin: str
    texts: t.Mapping[str, str]
    interfaces: t.Sequence[str]
    read: Read
    #: Target of the link that enables the boot unit, "" for none.
    wanted_by: str = ""


@dataclass
class Decision:
    """What changes and what is said."""

    choice: Choice
    environment: t.Dict[str, str]
    changes: t.List[Change]
    findings: t.List[Finding]


def decide(host: Host, wish: Wish, python: str, script: str) -> Decision:
    """The files as they are to be. Raises ValueError for a wish that cannot be."""
    refused = conf.refused(wish.environment)
    if refused:
        raise ValueError("topology_environment: " + "; ".join(refused))
    choice = choose(wish.shape, host.seen, host.topology, host.virtual, host.plugin, host.read)
    named = _named(host)
    finding = theirs(named, choice, FILE, host.seen, host.read) if named else choice.finding
    variables = _environment(host, wish)
    nccl = {name: value for name, value in variables.items() if name.startswith("NCCL_")}
    if choice.system is not None and not named:
        nccl = {"NCCL_TOPO_FILE": choice.path or FILE, **nccl}
    texts = dict(host.texts)
    findings = [finding, *_renamed(host, texts, wish.replace), *_line_ends(host)]
    merged = conf.merge(texts.get(conf.NCCL_CONF, ""), nccl)
    findings += _kept(merged.kept)
    texts[conf.NCCL_CONF] = merged.text
    rest = {name: value for name, value in variables.items() if not name.startswith("NCCL_")}
    texts[PROFILE] = conf.profile(rest) if rest else ""
    written = choice.system is not None and not choice.path and not named
    texts[FILE] = tree.write(choice.system) if written and choice.system is not None else ""
    texts[SCRIPT] = script if wish.clear_acs else ""
    texts[UNIT] = unit(python) if wish.clear_acs else ""
    for path in _foreign(host):
        if texts[path]:
            raise ValueError(
                f"{path} is to be written, and a file that this role did not make is there (no line {MARK!r}); move it"
                " away or take its variables into topology_environment; nothing was changed"
            )
        texts[path] = host.texts[path]
    return Decision(choice, {**nccl, **rest}, [*_changes(host, texts), *_enabled(host, wish.clear_acs)], findings)


def _foreign(host: Host) -> t.List[str]:
    return [path for path in MARKED if MARK not in host.texts.get(path, MARK)]


def _named(host: Host) -> t.List[Named]:
    """Every NCCL_TOPO_FILE that is not ours, those that go first before the others."""
    found = []
    for path, text in host.texts.items():
        if path in (FILE, SCRIPT, UNIT, PROFILE) and path not in _foreign(host):
            continue
        of_nccl = path == conf.NCCL_CONF
        for one in conf.of_nccl(_blank_block(text)) if of_nccl else conf.of_shell(text):
            if one.name == "NCCL_TOPO_FILE":
                found.append(Named(f"{path}:{one.line}", one.value.strip()))
    return sorted(found, key=lambda one: one.where.startswith(conf.NCCL_CONF))


def _blank_block(text: str) -> str:
    """The user's lines at their own numbers."""
    rest, at = conf.without_block(text)
    if at < 0:
        return text
    lines = text.count("\n") - rest.count("\n")
    return rest[:at] + "\n" * lines + rest[at:]


def _environment(host: Host, wish: Wish) -> t.Dict[str, str]:
    shape = shapes.recognise(host.seen) if host.virtual and wish.shape != "none" else None
    shape = shapes.BY_NAME.get(wish.shape, shape)
    found: t.Dict[str, t.Optional[str]] = dict(shape.environment) if shape else {}
    if found.get("NCCL_SOCKET_IFNAME") not in host.interfaces:
        found.pop("NCCL_SOCKET_IFNAME", None)
    found.update(wish.environment)
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _renamed(host: Host, texts: t.Dict[str, str], replace: bool) -> t.Iterator[Finding]:
    """Names that PyTorch gave up, by file and line; replaced in ``texts`` where the user wants it."""
    places, files = [], []
    for path, text in host.texts.items():
        if path in (FILE, SCRIPT, UNIT, PROFILE) and path not in _foreign(host):
            continue
        shell = path != conf.NCCL_CONF
        for one in conf.of_shell(text) if shell else conf.of_nccl(text):
            if one.name in conf.RENAMED:
                new = conf.RENAMED[one.name]
                places.append(f"{path}:{one.line} {one.name} ({f'now {new}' if new else 'nothing reads it'})")
                if new and path not in files:
                    files.append(path)
        if replace and path in files:
            texts[path] = conf.replace(text, shell)
    if not places:
        return
    if replace and files:
        yield Finding("environment-renamed", "ok", found=f"renamed: {_few(places)}", policy="report")
        return
    yield Finding(
        "environment-renamed",
        "warn",
        found=_few(places),
        expected="the names that PyTorch reads since 2.2, in the environment of the job: it does not read nccl.conf",
        action="fix configuration",
        reason="topology_environment_replace: true renames them in these files",
        policy="report",
        evidence={"places": places},
    )


def _line_ends(host: Host) -> t.Iterator[Finding]:
    text = host.texts.get(conf.NCCL_CONF, "")
    spoilt = [one for one in conf.of_nccl(text) if one.value.endswith("\r") or one.name != one.name.strip(conf.BLANK)]
    if spoilt:
        yield Finding(
            "nccl-conf",
            "warn",
            found=f"{conf.NCCL_CONF}: NCCL takes white space, a carriage return or a byte order mark for a part of name"
            f" or value in line {', '.join(str(one.line) for one in spoilt[:SHOWN])}",
            expected="NAME=VALUE, with a line feed alone at its end",
            action="fix configuration",
            policy="report",
        )


def _kept(kept: t.Sequence[t.Tuple[conf.Assignment, str]]) -> t.Iterator[Finding]:
    other = [(one, value) for one, value in kept if one.value.strip() != value]
    if other:
        words = [f"line {one.line} {one.name}={one.value.strip()} (ours: {value})" for one, value in other]
        yield Finding(
            "nccl-conf-kept",
            "warn",
            found=f"{conf.NCCL_CONF} keeps the user's {_few(words)}",
            expected="one value of a variable",
            policy="report",
        )


def _few(items: t.Sequence[str]) -> str:
    return ", ".join(items[:SHOWN]) + (f" and {len(items) - SHOWN} more" if len(items) > SHOWN else "")


def _changes(host: Host, texts: t.Mapping[str, str]) -> t.List[Change]:
    """What differs, a file before nccl.conf names it and gone only after that.

    A file of which nothing is left goes, where it held nothing but ours.
    """
    found = [
        Change(path, host.texts.get(path), text or None)
        for path, text in texts.items()
        if host.texts.get(path) != text and (text or path in host.texts)
    ]
    return sorted(found, key=lambda one: 1 if one.path == conf.NCCL_CONF else 2 if one.text is None else 0)


def _enabled(host: Host, wanted: bool) -> t.List[Change]:
    target = f"../{UNIT.rsplit('/', 1)[1]}" if wanted else ""
    if bool(host.wanted_by) == wanted:
        return []
    return [Change(WANTS, host.wanted_by or None, target or None, link=True)]
