# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Slurm in boxes: a controller and nodes of eight GPUs each, which are device nodes and, where asked, simulated.

    with slurm.cluster(tmp_path, nodes=4) as cluster:
        job = cluster.submit("sleep 60", "--nodelist=n2")           # a batch job of the user ops, its number
        cluster.until(lambda: cluster.job(job)["state"] == "RUNNING")
        cluster.ctl("scontrol", "update", "nodename=n2", "state=drain", "reason=mine")
        assert cluster.node("n2") == {"state": "draining", "reason": "mine", "user": "root"}
        cluster.configure("HealthCheckInterval=5")                  # lines beside the base, in force when it returns
        cluster.on("n2", "systemctl", "is-active", "slurmd")        # any command on a node; cluster.boxes names its box

Nodes are called n1, n2, ... in Slurm and as hosts; `boxes.ssh_config` reaches them as `cluster.boxes["n1"]`. Their
/etc/slurm is `run / "slurm"` of this machine, for all boxes the same. Up in about 10 s once the image is there.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import ipaddress
import json
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images

IMAGE = "debian12-slurm"
CONTROLLER = "ctl"
GPUSIM = Path(__file__).resolve().parents[1] / "simulator" / "gpusim"
# In force wherever a test says nothing else. The short life of a credential is also the pause before a job that was
# put back into the queue starts again: two minutes by default.
BASE = """ClusterName=gpufleet
SlurmctldHost={controller}({address})
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
MessageTimeout=10
KillWait=5
GresTypes=gpu
NodeName=n[1-{nodes}] CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:8
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
GRES = "AutoDetect=off\nNodeName=n[1-{nodes}] Name=gpu File=/dev/nvidia[0-7]\n"
GPUS = [option for index in range(8) for option in ("--device", f"/dev/null:/dev/nvidia{index}")]


class Cluster:
    """A running cluster; see the module for what it can do."""

    def __init__(self, run: Path, nodes: int, address: str) -> None:
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.boxes: dict[str, str] = {}
        self.folder = run / "slurm"
        self.folder.mkdir(mode=0o755)
        self._base = BASE.format(controller=CONTROLLER, address=address, nodes=nodes)
        (self.folder / "slurm.conf").write_text(self._base)
        (self.folder / "gres.conf").write_text(GRES.format(nodes=nodes))

    def on(self, name: str, *command: str, check: bool = True, timeout: float = 60) -> str:
        """What a command prints on a node or on the controller, as root; a failure raises with its words."""
        return images.podman("exec", self.boxes[name], *command, check=check, timeout=timeout).stdout.strip()

    def ctl(self, *command: str, check: bool = True) -> str:
        """The same on the controller."""
        return self.on(CONTROLLER, *command, check=check)

    def configure(self, *lines: str) -> None:
        """Set the lines of slurm.conf beside the base (those of the call before are gone), in force at once."""
        (self.folder / "slurm.conf").write_text(self._base + "".join(line + "\n" for line in lines))
        self.ctl("scontrol", "reconfigure")

    def nodes(self) -> dict[str, dict[str, str]]:
        """State (idle, mixed, draining, drained, ...), reason ("none" where there is none) and who set it, of all."""
        told = self.ctl("sinfo", "--noheader", "--Node", "--Format", "NodeList:|,StateLong:|,Reason:|,User:")
        found = {}
        for line in told.splitlines():
            name, state, reason, user = (word.strip() for word in line.split("|"))
            found[name] = {"state": state.rstrip("*"), "reason": reason, "user": user.partition("(")[0]}
        return found

    def node(self, name: str) -> dict[str, str]:
        """The same of one."""
        return self.nodes()[name]

    def each(self, work: t.Callable[[str], t.Any]) -> None:
        """Call it with the name of every node, at the same moment."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(work, self.names))

    def submit(self, script: str, *options: str) -> int:
        """Submit a batch job as the user ops. Its output is `/tmp/NUMBER.out` on the node that ran it."""
        place = ["--parsable", "--chdir=/tmp", "--output=/tmp/%j.out", "--open-mode=append", "--gpus-per-node=8"]
        command = ["sudo", "-u", "ops", "sbatch", *place, *options, "--wrap", script]
        return int(self.ctl(*command))

    def job(self, number: int) -> dict[str, str]:
        """State (PENDING, RUNNING, COMPLETED, ...), reason, nodes and restarts of a job (known for 5 minutes)."""
        told = self.ctl("scontrol", "--oneliner", "show", "job", str(number))
        words = dict(word.split("=", 1) for word in told.split() if "=" in word)
        fields = {"state": "JobState", "reason": "Reason", "nodes": "NodeList", "restarts": "Restarts"}
        return {name: words[field].replace("(null)", "") for name, field in fields.items()}

    def until(self, condition: t.Callable[[], bool], seconds: float = 60) -> float:
        """Wait until something is true, and return the seconds it took; RuntimeError shows the cluster."""
        start = time.monotonic()
        while not condition():
            if time.monotonic() - start > seconds:
                raise RuntimeError(f"not so after {seconds} s:\n{self.ctl('sinfo', '-N', '-l')}\n{self.ctl('squeue')}")
            time.sleep(0.2)
        return time.monotonic() - start

    def simulate(self, name: str, *options: str) -> None:
        """Give a node the GPUs of gpusim (its options); on the node `gpusim-set` changes them."""
        command = [sys.executable, str(GPUSIM), *options, "--container", self.boxes[name]]
        done = subprocess.run(
            command, env=images.podman_environment(), capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise RuntimeError(f"gpusim on {name}: exit {done.returncode}: {done.stderr}")


@contextlib.contextmanager
def cluster(run: Path, nodes: int = 4) -> t.Iterator[Cluster]:
    """A cluster whose nodes are all idle; `run` is a folder of the caller's own, as for `boxes.start`."""
    network = f"gpufleet-{hashlib.sha256(str(run).encode()).hexdigest()[:8]}"
    try:
        images.podman("network", "create", network)  # with a subnet that nobody has
        (shown,) = json.loads(images.podman("network", "inspect", network).stdout)
        hosts = list(ipaddress.ip_network(shown["subnets"][0]["subnet"]).hosts())
        # Slurm keeps the address that a name had at its start, so each is fixed and known to all.
        addresses = dict(zip([CONTROLLER, *(f"n{number}" for number in range(1, nodes + 1))], map(str, hosts[9:])))
        made = Cluster(run, nodes, addresses[CONTROLLER])
        known = [f"--add-host={name}:{address}" for name, address in addresses.items()]

        def start(name: str) -> None:
            place = ["--hostname", name, "--network", network, "--ip", addresses[name], *known]
            share = ["--volume", f"{made.folder}:/etc/slurm"]
            made.boxes[name] = boxes.start(run, name, IMAGE, *place, *share, *([] if name == CONTROLLER else GPUS))
            made.on(name, "systemctl", "start", "slurmctld" if name == CONTROLLER else "slurmd")

        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(start, addresses))
        made.until(lambda: made.ctl("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * nodes)
        yield made
    finally:
        boxes.remove(run)
        images.podman("network", "rm", "--force", network, check=False)
