# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boxes: containers with systemd that tests use as hosts. Start them, reach them by SSH, remove them all.

Ansible reaches a box by SSH over `podman exec ... sshd -i`: no address, no port and no known host is needed, pipelining
and a kept connection work, and so does a box without a network.

As a command (`python -m`), for Molecule's create and destroy playbooks: `up` starts the platforms of the scenario that
MOLECULE_FILE names, `down` removes them.
"""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import yaml

from ansible_collections.gpufleet.pytorch.tests.containers import images

# What carries a machine's own certificate authorities to Python, pip and their like.
CERTIFICATE_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
BOOT_SECONDS = 60


def pip_options(folder: Path) -> list[str]:
    """Options of `podman run` that give a box the machine's certificate authorities and pip settings, read-only.

    The settings in force here, environment included, become the box's /etc/pip.conf, so that each user of it has them;
    every file and folder that they name is mounted at its own path. The pip.conf is written into `folder`.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings: dict[str, str] = {}
    for line in listed.splitlines():  # global.x='...' or :env:.x='...', the one in force last
        name, _equals, value = line.partition("=")
        settings[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    pip_conf = folder / "pip.conf"
    pip_conf.write_text("[global]\n" + "".join(f"{k} = {' '.join(v.split())}\n" for k, v in settings.items()))
    pip_conf.chmod(0o644)

    variables = {name: os.environ[name] for name in CERTIFICATE_VARIABLES if os.environ.get(name)}
    options = ["--volume", f"{pip_conf}:/etc/pip.conf:ro"]
    for word in [word for value in (*settings.values(), *variables.values()) for word in value.split()]:
        # An index's pages link to files beside its own folder, so the folder above it is mounted.
        path = os.path.dirname(word[len("file://") :].rstrip("/")) if word.startswith("file://") else word
        if path.startswith("/") and os.path.exists(path) and f"{path}:{path}:ro" not in options:
            options += ["--volume", f"{path}:{path}:ro"]
    for name, value in variables.items():
        options += ["--env", f"{name}={value}"]
    return options


def full_name(run: Path, name: str) -> str:
    """The name under which podman knows a box of a run."""
    return f"gpufleet-{hashlib.sha256(str(run).encode()).hexdigest()[:8]}-{name}"


def start(run: Path, name: str, image: str, *options: str) -> str:
    """Start a box, wait until its systemd is up, and return its full name.

    `run` is a folder of the caller's own, one for each test: it labels the boxes for `remove`, tells them from those
    of every other run, and takes the settings that the box mounts.
    """
    reference = images.ensure(image)
    box = full_name(run, name)
    named = ["--name", box, "--hostname", box, "--label", f"gpufleet.run={run}"]
    images.podman(
        "run", "--detach", *named, "--systemd", "always", *pip_options(run), *options, reference, "/sbin/init"
    )
    wait(box)
    return box


def wait(box: str) -> None:
    """Wait until the systemd of a box that was started is up."""
    ask = ["exec", box, "systemctl", "is-system-running", "--wait"]
    end = time.monotonic() + BOOT_SECONDS
    while True:
        state = images.podman(*ask, check=False, timeout=BOOT_SECONDS)
        if state.stdout.strip() in ("running", "degraded"):
            return
        if time.monotonic() > end:
            raise RuntimeError(f"{box} was not up after {BOOT_SECONDS} s: {state.stdout}{state.stderr}")
        time.sleep(0.1)


def remove(run: Path) -> None:
    """Remove the boxes of a run, with what they hold. None is no error."""
    found = images.podman("ps", "--all", "--quiet", "--filter", f"label=gpufleet.run={run}").stdout.split()
    if found:
        images.podman("rm", "--force", "--time", "0", "--volumes", *found)


def ssh_config(path: Path) -> Path:
    """Write the client's settings under which `ssh -F path NAME` opens the box NAME; root unless a user is given."""
    conf = images.podman_environment()["CONTAINERS_CONF"]
    path.write_text(
        "Host *\n"
        f'  ProxyCommand env "CONTAINERS_CONF={conf}" podman exec --interactive %h /usr/sbin/sshd -i\n'
        f'  IdentityFile "{images.ssh_key()}"\n'
        "  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
        encoding="utf-8",
    )
    return path


def _molecule(action: str) -> None:
    run = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
    remove(run)
    if action == "down":
        return
    with open(os.environ["MOLECULE_FILE"], encoding="utf-8") as handle:
        platforms: list[dict[str, t.Any]] = yaml.safe_load(handle)["platforms"]
    settings = ssh_config(run / "ssh_config")
    instances = []
    for platform in platforms:
        name = platform["name"]
        box = start(run, name, platform.get("image") or name, *platform.get("options", []))
        reach = {"address": box, "port": 22, "identity_file": str(images.ssh_key())}
        instances.append({"instance": name, "user": platform.get("user", "root"), **reach})
        print(f"{name}: ssh -F {settings} {box}")
    Path(os.environ["MOLECULE_INSTANCE_CONFIG"]).write_text(yaml.safe_dump(instances), encoding="utf-8")


if __name__ == "__main__":
    _molecule(sys.argv[1])
