# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole way on machines laid out under a folder: which files change, what is said, a second run changes nothing."""

from __future__ import annotations

import os
import sys
import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import (
    conf,
    converge,
    decide,
    files,
    shapes,
    tree,
)
from ansible_collections.gpufleet.pytorch.tests.unit.module_utils._topology.conftest import Host

CONF = conf.NCCL_CONF
SCRIPT = "print()\n"


@pytest.fixture
def azure(host: Host) -> Host:
    host.shape(shapes.BY_NAME["azure-nd-a100-v4"])
    host.machine.file("/sys/class/net/eth0/address")
    (host.machine.root / "proc").mkdir(exist_ok=True)
    (host.machine.root / "etc").mkdir(exist_ok=True)
    return host


def run(host: Host, check: bool = False, proceed: bool = False, **wish: t.Any) -> converge.Done:
    return converge.converge(host.machine.runner(), decide.Wish(**wish), proceed, check, sys.executable, SCRIPT)


def found(done: converge.Done, check: str) -> Finding:
    (finding,) = [one for one in done.findings if one.check == check]
    return finding


def text(host: Host, path: str) -> t.Optional[str]:
    data = host.machine.runner().read_bytes(path)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def test_a_virtual_machine_that_hides_its_switches_gets_its_file(azure: Host) -> None:
    predicted = run(azure, check=True)
    assert text(azure, CONF) is None and text(azure, decide.FILE) is None
    done = run(azure)
    assert done.changed == predicted.changed == [decide.PROFILE, decide.FILE, CONF]
    assert [one["after"] for one in done.diff] == [one["after"] for one in predicted.diff]
    written = text(azure, decide.FILE) or ""
    assert written == done.xml
    assert tree.as_read(tree.parse(written)) == tree.as_read(shapes.build(shapes.BY_NAME["azure-nd-a100-v4"]))
    assert text(azure, CONF) == (
        f"{conf.BEGIN}\nNCCL_TOPO_FILE={decide.FILE}\nNCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_SOCKET_IFNAME=eth0\n{conf.END}\n"
    )
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in (text(azure, decide.PROFILE) or "")
    assert (done.shape, found(done, "topology-file").state) == ("azure-nd-a100-v4", "ok")
    assert os.stat(f"{azure.machine.root}{CONF}").st_mode & 0o777 == 0o644
    assert run(azure).changed == []
    gone = run(azure, shape="none")
    assert gone.changed == [CONF, decide.PROFILE, decide.FILE]
    assert [text(azure, path) for path in gone.changed] == [None, None, None]


def test_a_machine_that_shows_its_switches_is_left_alone(host: Host) -> None:
    host.hgx()
    done = run(host)
    assert (done.changed, done.shape, found(done, "topology-file").state) == ([], "", "ok")
    assert sorted(done.topology["gpus"]) == ["0000:1a:00.0", "0000:9a:00.0"]
    assert found(done, "acs").state == "warn"


#: What the user has, and what must hold.
THEIRS: t.Mapping[str, t.Tuple[str, str, str, str]] = {
    "in nccl.conf": (CONF, "NCCL_DEBUG=WARN\nNCCL_TOPO_FILE=/mine.xml\n", f"{CONF}:2", "warn"),
    "in nccl.conf, without a line end": (CONF, "NCCL_TOPO_FILE=/mine.xml", f"{CONF}:1", "warn"),
    "in nccl.conf, with carriage returns": (CONF, "NCCL_TOPO_FILE=/mine.xml\r\n", f"{CONF}:1", "warn"),
    "in /etc/environment": ("/etc/environment", "NCCL_TOPO_FILE=/mine.xml\n", "/etc/environment:1", "warn"),
    "in a profile": ("/etc/profile.d/site.sh", "export NCCL_TOPO_FILE=/mine.xml\n", "/etc/profile.d/site.sh:1", "warn"),
}


@pytest.mark.parametrize("case", THEIRS)
def test_a_topology_file_of_the_user_stays_and_both_are_named(azure: Host, case: str) -> None:
    path, content, where, state = THEIRS[case]
    azure.machine.file(path, content)
    done = run(azure)
    finding = found(done, "topology-file")
    assert (finding.state, finding.policy) == (state, "report")
    assert where in finding.found and "/mine.xml" in finding.found and decide.FILE in finding.found
    assert "it is not there" in finding.found
    assert (text(azure, path) or "").startswith(content)
    assert "NCCL_TOPO_FILE=/etc" not in (text(azure, CONF) or "") and text(azure, decide.FILE) is None
    assert run(azure).changed == []


def test_a_topology_file_of_the_user_that_is_right_is_fine(azure: Host) -> None:
    azure.machine.file("/mine.xml", tree.write(shapes.build(shapes.BY_NAME["azure-nd-a100-v4"])))
    azure.machine.file(CONF, "NCCL_TOPO_FILE=/mine.xml\n")
    assert found(run(azure), "topology-file").state == "ok"


def test_a_file_of_our_name_that_is_the_users_stays(azure: Host) -> None:
    azure.machine.file(decide.PROFILE, "export NCCL_TOPO_FILE=/mine.xml\n")
    with pytest.raises(ValueError, match="this role did not make"):
        run(azure)
    assert (text(azure, CONF), text(azure, decide.FILE)) == (None, None)
    done = run(azure, environment={"CUDA_DEVICE_ORDER": ""})
    assert done.changed == [CONF] and f"{decide.PROFILE}:1" in found(done, "topology-file").found
    run(azure, shape="none")
    assert text(azure, decide.PROFILE) == "export NCCL_TOPO_FILE=/mine.xml\n"


def test_a_link_a_mode_and_odd_bytes_survive(azure: Host) -> None:
    azure.machine.file("/srv/site/nccl.conf", b"# caf\xe9\nNCCL_DEBUG=WARN")
    azure.machine.link(CONF, "/srv/site/nccl.conf")
    real = azure.machine.root / "srv/site/nccl.conf"
    real.chmod(0o444)
    assert CONF in run(azure).changed
    assert (azure.machine.root / CONF[1:]).is_symlink()
    assert real.read_bytes().startswith(b"# caf\xe9\nNCCL_DEBUG=WARN\n# BEGIN")
    assert real.stat().st_mode & 0o777 == 0o444
    assert run(azure).changed == []


@pytest.mark.parametrize("what", ["folder", "link to nowhere", "large"])
def test_a_conf_that_is_no_file_is_not_touched(azure: Host, what: str) -> None:
    path = azure.machine.root / CONF[1:]
    if what == "folder":
        path.mkdir(parents=True)
    elif what == "large":
        path.write_bytes(b"#" * (files.LIMIT + 1))
    else:
        path.symlink_to("/nowhere/nccl.conf")
    with pytest.raises(ValueError, match=r"/etc/nccl.conf .*nothing was changed"):
        run(azure)
    assert text(azure, decide.FILE) is None


def test_a_place_that_cannot_be_written_is_named(azure: Host) -> None:
    azure.machine.file("/etc/gpufleet", "a file where a folder has to be")
    with pytest.raises(OSError) as caught:
        run(azure)
    assert caught.value.filename == decide.FILE


def test_nothing_is_changed_while_somebody_computes(azure: Host) -> None:
    azure.machine.file("/proc/4711/comm", "python\n")
    azure.machine.link("/proc/4711/fd/7", "/dev/nvidia0")
    done = run(azure)
    assert done.changed == [] and text(azure, CONF) is None
    finding = found(done, "topology-waits")
    assert finding.state == "warn" and "python (pid 4711" in finding.found and CONF in finding.found
    assert run(azure, proceed=True).changed == [decide.PROFILE, decide.FILE, CONF]
    assert [one for one in run(azure).findings if one.check == "topology-waits"] == []


@pytest.mark.parametrize(
    ("wish", "state", "words"),
    [
        ("none", "ok", "no topology file is wanted"),
        ("aws-p4d-24xlarge", "fail", "is not this machine's"),
        ("azure-nd-a100-v4", "ok", "published topology"),
        ("/nowhere.xml", "fail", "it is not there"),
        ("/etc/odd.xml", "fail", "NCCL stops at line 1"),
        ("/etc/other.xml", "fail", "the GPU at 0001:00:00.0 is not in it"),
    ],
)
def test_what_the_user_asks_for(azure: Host, wish: str, state: str, words: str) -> None:
    azure.machine.file("/etc/odd.xml", "\t<system/>")
    azure.machine.file("/etc/other.xml", tree.write(shapes.build(shapes.BY_NAME["aws-p4d-24xlarge"])))
    done = run(azure, shape=wish)
    finding = found(done, "topology-file")
    assert (finding.state, words in finding.found) == (state, True), finding.found
    assert ("NCCL_TOPO_FILE" in (text(azure, CONF) or "")) == (wish == "azure-nd-a100-v4")


def test_the_provider_file_on_the_host_is_named_and_not_copied(azure: Host) -> None:
    azure.machine.file("/opt/microsoft/ndv4-topo.xml", tree.write(shapes.build(shapes.BY_NAME["azure-nd-a100-v4"])))
    run(azure, shape="/opt/microsoft/ndv4-topo.xml")
    assert "NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml\n" in (text(azure, CONF) or "")
    assert text(azure, decide.FILE) is None


@pytest.mark.parametrize("wish", ["auto ", "azure", "relative.xml", ""])
def test_an_unknown_shape_is_refused_with_those_there_are(azure: Host, wish: str) -> None:
    with pytest.raises(ValueError, match="azure-nd-a100-v4"):
        run(azure, shape=wish)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/var/run/nvidia-topologyd/virtualTopology.xml", "which NCCL reads by itself"),
        ("/opt/amazon/ofi-nccl/lib/libnccl-net.so", "plug-in"),
    ],
)
def test_what_gives_nccl_its_topology_already(azure: Host, path: str, words: str) -> None:
    azure.machine.file(path)
    done = run(azure)
    assert words in found(done, "topology-file").found
    assert text(azure, decide.FILE) is None and "NCCL_TOPO_FILE" not in (text(azure, CONF) or "")


def test_a_virtual_machine_that_nobody_published(host: Host) -> None:
    host.dmi("QEMU", "Standard PC")
    for bus in ("01", "02"):
        host.gpu(f"0000:{bus}:00.0", numa="-1")
    done = run(host)
    finding = found(done, "topology-file")
    assert (finding.state, finding.policy, done.changed) == ("warn", "report", [])


def test_names_of_old_are_named_by_line_and_replaced_only_when_asked(host: Host) -> None:
    host.hgx()
    host.machine.file(CONF, "NCCL_DEBUG=WARN\nNCCL_ASYNC_ERROR_HANDLING=1")
    host.machine.file("/etc/environment", 'A="1"\nNCCL_BLOCKING_WAIT=1\n')
    host.machine.file("/etc/profile.d/site.sh", "# NCCL_BLOCKING_WAIT=1\nexport NCCL_TIMEOUT=9\n")
    host.machine.file("/srv/job.sh", "#!/bin/sh\r\nexport NCCL_DESYNC_DEBUG=1\r\n")
    (host.machine.root / "proc").mkdir()
    before = {path: text(host, path) for path in (CONF, "/etc/environment", "/etc/profile.d/site.sh", "/srv/job.sh")}
    done = run(host, files=["/srv/job.sh"])
    finding = found(done, "environment-renamed")
    assert (finding.state, done.changed) == ("warn", [])
    for place in (f"{CONF}:2 NCCL_ASYNC", "/etc/environment:2 NCCL_BLOCKING", "/etc/profile.d/site.sh:2 NCCL_TIMEOUT",
                  "/srv/job.sh:2 NCCL_DESYNC"):  # fmt: skip
        assert any(one.startswith(place) for one in finding.evidence["places"])
    assert {path: text(host, path) for path in before} == before
    done = run(host, files=["/srv/job.sh"], replace=True)
    assert sorted(done.changed) == sorted(["/etc/environment", "/srv/job.sh", CONF])
    assert text(host, "/srv/job.sh") == "#!/bin/sh\r\nexport TORCH_NCCL_DESYNC_DEBUG=1\r\n"
    assert text(host, CONF) == "NCCL_DEBUG=WARN\nTORCH_NCCL_ASYNC_ERROR_HANDLING=1"
    assert text(host, "/etc/profile.d/site.sh") == before["/etc/profile.d/site.sh"]
    again = run(host, files=["/srv/job.sh"], replace=True)
    assert again.changed == [] and found(again, "environment-renamed").state == "warn"  # NCCL_TIMEOUT has no new name


def test_a_listed_file_that_is_not_there(host: Host) -> None:
    host.hgx()
    with pytest.raises(ValueError, match=r"/srv/gone\.sh, which is not there"):
        run(host, files=["/srv/gone.sh"])


def test_variables_of_the_user_and_of_the_machine(azure: Host) -> None:
    azure.machine.file(CONF, "NCCL_SOCKET_IFNAME=ens1\nNCCL_DEBUG=INFO\r\n")
    wish = {"NCCL_IB_PCI_RELAXED_ORDERING": "", "NCCL_NVLS_ENABLE": 0, "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    done = run(azure, environment=wish)
    assert done.environment == {
        "NCCL_TOPO_FILE": decide.FILE, "NCCL_SOCKET_IFNAME": "eth0", "NCCL_NVLS_ENABLE": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }  # fmt: skip
    assert (
        found(done, "nccl-conf-kept").state == "warn"
        and "NCCL_SOCKET_IFNAME=ens1" in found(done, "nccl-conf-kept").found
    )
    assert "line 2" in found(done, "nccl-conf").found
    assert "NCCL_SOCKET_IFNAME=eth0" not in (text(azure, CONF) or "")
    with pytest.raises(ValueError, match="is TORCH_NCCL_BLOCKING_WAIT since torch"):
        run(azure, environment={"NCCL_BLOCKING_WAIT": "1"})


def test_acs_is_cleared_where_wanted_and_the_unit_goes_with_the_wish(host: Host) -> None:
    host.hgx()
    (host.machine.root / "proc").mkdir()
    predicted = run(host, check=True, clear_acs=True)
    assert found(predicted, "acs").state == "ok" and found(run(host), "acs").state == "warn"
    done = run(host, clear_acs=True)
    paths = [decide.SCRIPT, decide.UNIT, decide.WANTS]
    assert done.changed == predicted.changed == [*paths, "ACS"]
    assert found(done, "acs").state == "ok"
    unit = text(host, decide.UNIT) or ""
    assert f"ExecStart={sys.executable} -I {decide.SCRIPT}\n" in unit and "slurmd.service" in unit
    assert text(host, decide.SCRIPT) == SCRIPT
    assert os.readlink(f"{host.machine.root}{decide.WANTS}") == "../gpufleet-acs.service"
    assert run(host, clear_acs=True).changed == []
    assert run(host).changed == paths
    assert not any(os.path.lexists(f"{host.machine.root}{path}") for path in paths)


def test_acs_of_a_virtual_machine_is_never_touched(azure: Host) -> None:
    done = run(azure, clear_acs=True)
    assert found(done, "acs").state == "not_applicable"
    assert decide.UNIT not in done.changed
