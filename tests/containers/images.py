# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container images for tests: Debian with systemd and sshd, made once and kept outside the tree.

No registry of container images is asked: debootstrap makes the root file system from the machine's own apt mirror and
`podman import` takes it in; an image on top of another is that one and Debian packages. `python images.py` makes those
that are missing and prints their names.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import typing as t
from pathlib import Path

SUITES = {"debian12": "bookworm", "debian13": "trixie"}
# What makes a Debian with dnf and rpm Enterprise Linux to whoever asks; an image of the real one is nowhere to be had
# without a registry. Its dnf is the same program (4.14 as on EL 9; 4.23 where EL 10 has 4.20), its Python is Debian's.
RPM = ("dnf", "dnf-plugins-core", "rpm", "createrepo-c", "gnupg")
ENTERPRISE = (
    "sed -i 's/enabled.*/enabled = 0/' /etc/dnf/plugins/local.conf",
    "rm -rf /etc/os-release /etc/debian_version /usr/bin/apt* /usr/bin/dpkg* /var/lib/dpkg /var/lib/apt",
    "mkdir -p /etc/yum.repos.d /etc/rpm /var/lib/rpm",
    "echo '%_dbpath /var/lib/rpm' > /etc/rpm/macros",
    "rpm --initdb",
    "echo MAJOR > /etc/dnf/vars/releasever",
    "echo module_platform_id=platform:elMAJOR >> /etc/dnf/dnf.conf",
    """printf '%s\\n' ID=rocky 'ID_LIKE="rhel centos fedora"' VERSION_ID=MINOR 'NAME="Rocky Linux"' \\
    'PRETTY_NAME="Rocky Linux MINOR"' PLATFORM_ID=platform:elMAJOR > /etc/os-release""",
)


def _enterprise(minor: str) -> str:
    return " && ".join(ENTERPRISE).replace("MINOR", minor).replace("MAJOR", minor.split(".", 1)[0])


# An image on top of another: its base, the packages, and what a user of theirs would have done with them.
ON_TOP = {
    "debian13-torch": (
        "debian13",
        ("python3-torch",),
        "python3 -m venv --without-pip --system-site-packages /opt/research",
    ),
    # A controller or a node of Slurm: which of its daemons runs is said by who starts the box.
    "debian12-slurm": (
        "debian12",
        ("munge", "python3-prometheus-client", "slurm-client", "slurmctld", "slurmd"),
        "systemctl disable --quiet slurmctld slurmd",
    ),
    "el9": ("debian12", (*RPM, "dkms", "gcc", "linux-headers-amd64"), _enterprise("9.6")),
    "el10": ("debian13", RPM, _enterprise("10.1")),
}
PACKAGES = (
    "ca-certificates",
    "dbus",
    "git",
    "iproute2",
    "openssh-server",
    "procps",
    "python3",
    "sudo",
    "systemd",
    "systemd-sysv",
)
# Run in the new root: `ops` may use sudo, nobody needs a password, and no timer takes apt's lock during a test.
FINISH = """
useradd --create-home --shell /bin/bash ops
echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops
for home in /root /home/ops; do
  install -d -m 700 -o $(basename $home) $home/.ssh
  install -m 600 -o $(basename $home) /tmp/id.pub $home/.ssh/authorized_keys
done
printf 'UseDNS no\\nMaxStartups 50:30:200\\n' > /etc/ssh/sshd_config.d/tests.conf
systemctl mask apt-daily.timer apt-daily-upgrade.timer
: > /etc/machine-id
rm -rf /tmp/id.pub /var/cache/apt/archives/*.deb /var/lib/apt/lists/*
"""


def cache_dir() -> Path:
    """The folder for what tests make once: the SSH key, podman's settings, roots under construction."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("GPUFLEET_CACHE") or os.path.join(base, "gpufleet"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _only_one(name: str) -> t.Iterator[None]:
    """Parallel test runs make an image, a key or a settings file once."""
    with open(cache_dir() / (name + ".lock"), "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def ssh_key() -> Path:
    """The private key that opens every container of the tests."""
    key = cache_dir() / "id_ed25519"
    with _only_one("ssh-key"):
        if not key.exists():
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpufleet-tests", "-f", str(key)]
            subprocess.run(command, check=True)
    return key


def podman_environment() -> dict[str, str]:
    """This process's environment with podman's settings for tests, which leave the machine's own alone.

    runc, because crun refuses machines that mount cgroup v1 and v2 together; limits, because podman's default for open
    files may lie above what the machine allows.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    hard = 20000 if hard == resource.RLIM_INFINITY else min(hard, 20000)
    text = (
        f'[containers]\ndefault_ulimits = ["nofile={min(hard, 10000)}:{hard}", "nproc=4096:4096"]\n'
        '[engine]\nruntime = "runc"\n'
    )
    path = cache_dir() / "containers.conf"
    with _only_one("containers.conf"):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return {**os.environ, "CONTAINERS_CONF": str(path)}


def podman(*arguments: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run podman with the tests' settings; with `check` a failure raises with podman's own words."""
    done = subprocess.run(
        ["podman", *arguments], env=podman_environment(), capture_output=True, text=True, timeout=timeout, check=False
    )
    if check and done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise RuntimeError(f"podman {' '.join(arguments)}: exit {done.returncode}: {said}")
    return done


def debian_mirror(sources: Path = Path("/etc/apt")) -> str:
    """The Debian mirror that the machine's apt uses, or "" where it names none (debootstrap then knows one)."""
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    for path in files:
        if not path.is_file():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            for uri in re.findall(r"\bhttps?://\S+", line.split("#")[0]):
                if uri.rstrip("/").endswith("/debian"):
                    return str(uri)
    return ""


def _recipe(name: str) -> str:
    public = ssh_key().with_suffix(".pub").read_text(encoding="utf-8")
    made_of = [ON_TOP[name], _recipe(ON_TOP[name][0])] if name in ON_TOP else [SUITES[name], PACKAGES, FINISH, public]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]


def ensure(name: str) -> str:
    """The reference of an image, made first where it is missing or was made by another recipe (about a minute).

    Raises RuntimeError with the tail of the log where it cannot be made.
    """
    reference = f"localhost/gpufleet/{name}"
    recipe = _recipe(name)
    with _only_one(name):
        seen = podman("image", "inspect", "--format", "{{.Labels.recipe}} {{.Id}}", reference, check=False)
        label, _space, old = seen.stdout.strip().rpartition(" ")
        if label != recipe:
            if name in ON_TOP:
                _add(reference, recipe, *ON_TOP[name])
            else:
                _make(reference, recipe, SUITES[name])
            if old:
                podman("image", "rm", old, check=False)  # refused where something still uses it
    return reference


def _add(reference: str, recipe: str, base: str, packages: tuple[str, ...], then: str) -> None:
    install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends " + " ".join(packages)
    clean = "rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*"
    box = f"gpufleet-image-{recipe}"
    command = ["run", "--name", box, "--env", "DEBIAN_FRONTEND=noninteractive", ensure(base)]
    try:
        podman(*command, "/bin/sh", "-c", f"{install} && {then} && {clean}", timeout=900)
        changes = ["--change", f"LABEL recipe={recipe}", "--change", "ENV DEBIAN_FRONTEND="]
        podman("commit", "--quiet", *changes, box, reference)
    finally:
        podman("rm", "--force", "--ignore", box, check=False)


def _make(reference: str, recipe: str, suite: str) -> None:
    root = Path(tempfile.mkdtemp(prefix=suite + "-", dir=cache_dir()))
    root.chmod(0o755)  # it becomes the image's /, which plain users must be able to enter
    try:
        command = ["debootstrap", "--variant=minbase", "--include=" + ",".join(PACKAGES), suite, str(root)]
        mirror = debian_mirror()
        done = subprocess.run(
            command + ([mirror] if mirror else []), capture_output=True, text=True, check=False, timeout=900
        )
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
            source = mirror or "its default mirror"
            raise RuntimeError(f"debootstrap {suite} from {source}: exit {done.returncode}\n{tail}")
        shutil.copy(ssh_key().with_suffix(".pub"), root / "tmp/id.pub")
        subprocess.run(["chroot", str(root), "/bin/sh", "-eu", "-c", FINISH], check=True, capture_output=True)
        (root / "etc/hostname").unlink(missing_ok=True)
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            take = ["podman", "import", "--quiet", "--change", f"LABEL recipe={recipe}", "-", reference]
            subprocess.run(take, env=podman_environment(), stdin=tar.stdout, check=True, capture_output=True)
        if tar.returncode:
            raise RuntimeError(f"tar of {root}: exit {tar.returncode}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    for image in (*SUITES, *ON_TOP):
        print(ensure(image))
