# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role driver leaves behind on Debian, seen by the system's own tools."""

from __future__ import annotations

import json
import typing as t

import pytest

VERSION = "535.261.03-1"
NAMES = ("libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-open-kernel-dkms", "nvidia-smi")
MODULES = [f"nvidia-current-open{part}" for part in ("", "-drm", "-modeset", "-peermem", "-uvm")]
#: A repository of a newer driver: an empty package for each name, as an archive's next point release has it.
NEWER = """
set -eu
mkdir -p /srv/newer && cd /srv/newer
for name in {names}; do
  mkdir -p $name/DEBIAN
  printf '%s\\n' "Package: $name" 'Version: 535.999.99-1' 'Architecture: amd64' 'Maintainer: t <t@x.invalid>' \\
    '{same}' 'Description: newer' > $name/DEBIAN/control
  dpkg-deb --root-owner-group -Znone --build $name . > /dev/null
done
dpkg-scanpackages . 2> /dev/null > Packages
echo 'deb [trusted=yes] file:/srv/newer ./' > /etc/apt/sources.list.d/newer.list
apt-get -qq update
"""


def on(host: t.Any, release: str) -> None:
    if host.system_info.release.partition(".")[0] != release:
        pytest.skip(f"is about Debian {release}")


def states(host: t.Any) -> dict[str, tuple[str, str]]:
    """State of dpkg and version of each package of the driver."""
    listed = host.check_output("dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n'")
    rows = [line.split("|") for line in listed.splitlines()]
    return {name: (state.strip(), version) for state, name, version in rows}


def kernel_of(host: t.Any) -> str:
    return str(host.check_output("ls /lib/modules"))


class TestDebian12:
    """Where the module builds."""

    @pytest.fixture(autouse=True)
    def only(self, host: t.Any) -> None:
        on(host, "12")

    def test_every_module_is_built_for_the_kernel_of_the_headers(self, host: t.Any) -> None:
        kernel = kernel_of(host)
        assert kernel.startswith("6.1.0-")
        assert "installed" in host.check_output("dkms status")
        for name in MODULES:
            path = f"/lib/modules/{kernel}/updates/dkms/{name}.ko"
            assert host.check_output(f"modinfo -F vermagic {path}").split()[0] == kernel, name
        assert host.check_output(f"modinfo -k {kernel} -F version nvidia-current-open") == VERSION.partition("-")[0]

    def test_every_package_of_the_version_is_held(self, host: t.Any) -> None:
        found = {name: state for name, (state, version) in states(host).items() if version == VERSION}
        assert set(NAMES) < set(found)
        assert set(found.values()) == {"hi"}
        assert states(host)["nvidia-persistenced"][0] == "ii"

    def test_an_upgrade_leaves_the_driver_where_it_is(self, host: t.Any) -> None:
        same = "Multi-Arch: same"
        host.check_output(
            NEWER.format(names=" ".join(name for name in NAMES if not name.startswith("lib")), same="Multi-Arch: no")
        )
        host.check_output(NEWER.format(names=" ".join(name for name in NAMES if name.startswith("lib")), same=same))
        assert "535.999.99-1" in host.check_output("apt-cache madison nvidia-smi")
        host.check_output("DEBIAN_FRONTEND=noninteractive apt-get -qq --yes dist-upgrade")
        assert {states(host)[name] for name in NAMES} == {("hi", VERSION)}
        # The pin alone holds too, also for a package that is not here yet.
        assert host.check_output("apt-cache policy libnvidia-ml1 | sed -n 3p").split() == ["Candidate:", VERSION]
        host.check_output("rm /etc/apt/sources.list.d/newer.list && apt-get -qq update")

    def test_nouveau_stays_out_and_nodes_come_first(self, host: t.Any) -> None:
        assert "blacklist nouveau" in host.check_output("modprobe --showconfig").splitlines()
        unit = host.check_output("systemctl cat gpufleet-device-nodes.service")
        assert "slurmd.service" in next(line for line in unit.splitlines() if line.startswith("Before="))
        assert host.check_output("systemctl is-enabled gpufleet-device-nodes.service") == "enabled"
        assert host.run("systemd-analyze verify /etc/systemd/system/gpufleet-device-nodes.service").rc == 0
        assert host.check_output("systemctl is-enabled nvidia-persistenced.service") == "enabled"


class TestDebian13:
    """Where it does not."""

    @pytest.fixture(autouse=True)
    def only(self, host: t.Any) -> None:
        on(host, "13")

    def test_the_role_says_what_the_compiler_said_first(self, host: t.Any) -> None:
        result = json.loads(host.file("/root/driver-result.json").content_string)
        assert result["failed"] is True
        (finding,) = result["findings"]
        assert (finding["check"], finding["state"]) == ("dkms-not-built", "fail")
        assert "too few arguments to function" in finding["found"] and "pci_resize_resource" in finding["found"]
        assert finding["evidence"]["driver"] == "550.163.01"
        assert finding["evidence"]["kernel"].startswith("6.12.")
        log = host.file(finding["evidence"]["log"])
        assert log.contains("nv-pci.c")

    def test_apt_is_usable_and_nothing_of_the_driver_stays(self, host: t.Any) -> None:
        assert host.check_output("dpkg --audit") == ""
        host.check_output("apt-get check")
        left = [name for name, (state, _version) in states(host).items() if state[1] == "i" and "nvidia" in name]
        assert left == []
        host.check_output("DEBIAN_FRONTEND=noninteractive apt-get -qq --yes install --no-install-recommends hello")
        for path in (
            "/etc/apt/preferences.d/gpufleet-driver",
            "/etc/gpufleet/driver.json",
            "/etc/modprobe.d/gpufleet-nouveau.conf",
        ):
            assert not host.file(path).exists, path
