# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real processes without torch: one end for each kind of worker, and none that stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import wire
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.judge import judge
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import Supervisor, Worker, sources

#: A worker as ours are, that does what its job says.
CODE = """
import os, signal, sys, time
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire, tie_life
def main(job):
    tie_life(job["parent"], job["alarm_s"])
    wire = Wire()
    wire.emit("imported")
    exec(job["does"], {"wire": wire, "job": job, "os": os, "signal": signal, "sys": sys, "time": time})
    wire.emit("done")
"""


def run(*does, limit=20.0, **settings):
    source = [*sources([wire.__name__]), ("doing", CODE)]
    workers = [Worker(str(number), {"does": text}) for number, text in enumerate(does)]
    return Supervisor(sys.executable, source, import_limit=20, before=limit / 2, after=limit / 2, **settings).run(
        workers
    )


def alive(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def test_the_bootstrap_fits_a_pipe():
    """The first line is written before the worker reads: more than a pipe holds would wait for a worker that hangs."""
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.prove import worker_source

    assert sum(len(text) for _name, text in worker_source()) < 48 * 1024


@pytest.mark.parametrize(
    "does, ended, code",
    [
        ("pass", "done", 0),
        ("wire.emit('done'); time.sleep(1000)", "done", -signal.SIGKILL),  # an exit that takes for ever
        ("os.fork() or time.sleep(5)", "done", 0),  # a child that holds its descriptors
        ("print('noise of a library'); os.write(1, b'more noise')", "done", 0),
        ("raise ValueError('x')", "crash", 1),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crash", -signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", "crash", -signal.SIGKILL),
        ("wire.emit('error', kind='cuda_error'); os._exit(1)", "error", 1),
        ("time.sleep(1000)", "hang", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "hang", -signal.SIGKILL),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(1000)", "hang", -signal.SIGKILL),
        ("os.close(0); os.close(1); os.close(2); wire._out.close(); time.sleep(1000)", "hang", -signal.SIGKILL),
    ],
)
def test_each_end_is_named_and_hits_nobody_else(does, ended, code):
    limit = 1.0 if ended == "hang" else 20.0
    bad, good = run(does, "pass", limit=limit)
    assert (bad.ended, bad.code, good.ended, good.code) == (ended, code, "done", 0)
    assert not alive(bad.pid) and not alive(good.pid)


def test_what_a_killed_worker_left_is_gone_with_its_folder():
    leaves = "open(os.environ['TMPDIR'] + '/left', 'w').close(); wire.emit('at', folder=os.environ['TMPDIR'])"
    killed, done = run(leaves + "; time.sleep(1000)", leaves, limit=1.0)
    folders = {outcome.named("at")[0]["folder"] for outcome in (killed, done)}
    assert (killed.ended, done.ended, len(folders)) == ("hang", "done", 2)
    assert not any(os.path.exists(folder) for folder in folders)


FREEZER = "/sys/fs/cgroup/freezer"


@pytest.fixture
def frozen():
    """A group whose processes are frozen as the kernel freezes them: in state D, and not even SIGKILL ends them."""
    group = os.path.join(FREEZER, f"gpufleet-{os.getpid()}")
    try:
        os.mkdir(group)
    except OSError as error:
        pytest.skip(f"needs root and the freezer of cgroup v1 at {FREEZER}: {error}")
    state = os.path.join(group, "freezer.state")

    def become(text):
        with open(state, "w") as file:
            file.write(text)

    become("FROZEN")
    yield os.path.join(group, "cgroup.procs")
    become("THAWED")
    assert wait_for(lambda: removed(group))


def removed(group):
    try:
        os.rmdir(group)
    except OSError:  # a process is still in it
        return False
    return True


def test_workers_stuck_in_the_kernel_are_named_and_left_and_the_others_are_whole(frozen):
    """Three of them, as when a driver is stuck: all are left behind in the time of one."""
    stuck = f"open({frozen!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    fine = "time.sleep(1.2); wire.emit('ready'); wire.wait(); wire.emit('fact', n=1)"
    begin = time.monotonic()
    *bad, good = run(stuck, stuck, stuck, fine, limit=4.0)
    assert time.monotonic() - begin < 2 + 5 + 4
    assert (good.ended, good.named("fact")) == ("done", [{"event": "fact", "n": 1}])
    for outcome in bad:
        assert (outcome.ended, outcome.code) == ("stuck", None) and alive(outcome.pid)
        assert f"process {outcome.pid} does not end by SIGKILL and is left behind (state D" in outcome.problem
    finding = judge(
        [Device("cuda", "GPU-a", "GPU", **device_of(bad[0])), Device("cuda", "GPU-b", "GPU", **device_of(good))]
    )[0]
    assert (finding.state, finding.subject.key, finding.action) == ("fail", "GPU-a", "reboot")
    assert f"process {bad[0].pid} " in finding.found


def test_a_child_of_a_worker_that_hangs_is_ended_too():
    does = "child = os.fork() or time.sleep(1000); wire.emit('child', pid=child); time.sleep(1000)"
    (outcome,) = run(does, limit=1.0)
    assert outcome.ended == "hang"
    stat = "/proc/{}/stat".format(outcome.named("child")[0]["pid"])
    assert not os.path.exists(stat) or ") Z " in Path(stat).read_text()  # nobody has taken note of its end


def test_a_child_that_is_stuck_in_the_kernel_is_named(frozen):
    """As a rank of torchrun may be, whose launcher is ended well."""
    does = f"os.fork() or open({frozen!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    bad, good = run(does, "pass", limit=2.0)
    assert (bad.ended, bad.code, good.ended) == ("hang", -signal.SIGKILL, "done")
    assert "process" in bad.problem and f"process {bad.pid} " not in bad.problem and "(state D" in bad.problem


def device_of(outcome):
    names = ("ended", "events", "code", "stderr", "problem", "seconds")
    return {name: getattr(outcome, name) for name in names}


def test_what_prints_without_an_end_is_stopped_long_before_its_limit():
    begin = time.monotonic()
    events = 'while True: os.write(wire.descriptor, b\'{"event": "exact"}\\n\' * 2000)'
    noise = "while True: os.write(wire.descriptor, b'x' * 65536)"
    for outcome in run(events, noise, limit=400):
        assert outcome.ended == "hang" and outcome.problem.startswith("it sent more than 64 MiB")
        assert len(outcome.events) < 110_000
    assert time.monotonic() - begin < 60


def test_an_interpreter_that_is_missing():
    outcome = Supervisor("/no/such/python", []).run([Worker("0", {})])[0]
    assert (outcome.ended, outcome.problem) == ("not_started", "/no/such/python is not there")


def test_what_libraries_print_does_not_disturb():
    (outcome,) = run("os.write(2, b'a warning\\n'); os.write(1, b'{\"event\": \"fake\"}\\n'); wire.emit('fact', n=1)")
    assert [event["event"] for event in outcome.events] == ["imported", "fact", "done"]
    assert "a warning" in outcome.stderr and "fake" in outcome.stderr


def test_load_starts_together_and_in_steps():
    stamp = "wire.emit('ready'); wire.wait(); wire.emit('went', at=time.monotonic())"
    late = "time.sleep(0.3); wire.emit('before', at=time.monotonic()); " + stamp
    outcomes = run(stamp, late, stamp, ramp=0.2)
    went = sorted(outcome.named("went")[0]["at"] for outcome in outcomes)
    assert went[0] >= outcomes[1].named("before")[0]["at"]
    assert went[1] - went[0] > 0.1 and went[2] - went[1] > 0.1


def test_a_sibling_that_hangs_does_not_keep_the_others_waiting_for_ever():
    ready = "wire.emit('ready'); wire.wait()"
    begin = time.monotonic()
    outcomes = run(ready, "time.sleep(1000)", ready, limit=2.0)
    assert [outcome.ended for outcome in outcomes] == ["done", "hang", "done"]
    assert time.monotonic() - begin < 10


HOST = """
import sys
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import wire
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.judge import judge
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import Supervisor, Worker, sources
CODE = sys.argv[1]
does = "sys.stderr.write('x'); open(%r, 'a').write(str(os.getpid()) + chr(10)); time.sleep(1000)" % sys.argv[2]
source = [*sources([wire.__name__]), ("doing", CODE)]
Supervisor(sys.executable, source, before=1000).run([Worker(str(n), {"does": does}) for n in range(3)])
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_the_module(tmp_path, how):
    pids = tmp_path / "pids"
    # Of a module that is killed, the empty folders of its workers stay.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TMPDIR": str(tmp_path)}
    # A test session in the background ignores the signal, and its children inherit that.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    host = subprocess.Popen(
        [sys.executable, "-c", heard + HOST, CODE, str(pids)], env=environ, stderr=subprocess.DEVNULL
    )
    watchdog = threading.Timer(60, host.kill)
    watchdog.start()
    try:
        started = wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 3 and pids.read_text().split())
        host.send_signal(how)
        host.wait(30)
    finally:
        watchdog.cancel()
    assert wait_for(lambda: not any(alive(int(pid)) for pid in started))


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    return None
