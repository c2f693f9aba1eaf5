# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpufleet-gate does for others with the verdict, by the first word of its command line. It looks at nothing
but, with ``power``, at the BMC, for the findings that the next look takes in.

gpufleet-gate slurm-health --limit=5% --unknown=pass --scontrol=scontrol [--node=NAME]
gpufleet-gate slurm-wiring --scontrol=scontrol
gpufleet-gate node-condition --node=NAME [--every=SECONDS]
gpufleet-gate metrics --to=PATH
gpufleet-gate deliver --to=FOLDER|ADDRESS [--name=HOST] [--headers=PATH]
gpufleet-gate pulled --result=RESULT --valid-for=SECONDS
gpufleet-gate power [--redundancy=n+1] [--base-load=W] [--supply-watts=W] [--expected=N] [--inlet-max=C] [--limit=S]
"""

from __future__ import annotations

import os
import re
import sys
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict

#: Seconds: of one command of Slurm, and of a whole run, under the 60 s after which slurmd kills it.
_SCONTROL_S = 10.0
_HEALTH_S = 50.0

Options = t.Dict[str, str]


def run(argv: t.Sequence[str], folder: str) -> int:
    """The exit status of a command. ``folder``: of the verdict."""
    name = argv[0]
    if name not in COMMANDS:
        return _failed(name, f"is no command; there are\n{__doc__.split(chr(10), 2)[2].strip()}")
    work, known = COMMANDS[name]
    options = dict(word[2:].split("=", 1) for word in argv[1:] if word.startswith("--") and "=" in word)
    wrong = [word for word in argv[1:] if word[2:].partition("=")[0] not in options]
    wrong += [f"--{word}" for word in options if word not in known.split()]
    if wrong or len(options) != len(argv) - 1:
        there = ", ".join(f"--{word}=" for word in known.split())
        return _failed(name, f"{' '.join(wrong) or 'an option that is given twice'} is no option; there are {there}")
    try:
        return work(options, folder)
    except KeyError as error:
        return _failed(name, f"--{error.args[0]}= is needed")
    except (OSError, ValueError) as error:
        return _failed(name, str(error))


def _read(folder: str) -> verdict.Verdict:
    return verdict.read(os.path.join(folder, verdict.FILE), verdict.now())


def _slurm_health(options: Options, folder: str) -> int:
    """Ends with 0 whatever happens: slurmd would not register this node otherwise."""
    import signal
    import syslog

    def late(_number: int, _frame: t.Any) -> None:
        os._exit(0)

    def say(text: str) -> None:
        syslog.syslog(syslog.LOG_WARNING, text)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _HEALTH_S)
    syslog.openlog("gpufleet-gate", 0, syslog.LOG_DAEMON)
    try:
        from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import slurm

        name = options.get("node") or os.environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".", 1)[0]
        slurm.allowed(options["limit"], 1)
        health = slurm.Health(name, _scontrol(options), folder, options["limit"], say)
        health.run(_read(folder), options["unknown"] == "drain")
    except Exception as error:  # pylint: disable=broad-except
        say(f"slurm-health: {type(error).__name__}: {error}")
    return 0


def _scontrol(options: Options) -> t.Callable[[t.Sequence[str]], t.Optional[str]]:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

    # Times are compared, so their form is not left to the site's settings.
    runner = Runner(env={**os.environ, "SLURM_TIME_FORMAT": "standard"})

    def ask(words: t.Sequence[str]) -> t.Optional[str]:
        told = runner.run([options["scontrol"], *words], _SCONTROL_S)
        return told.out if told.rc == 0 else None

    return ask


def _slurm_wiring(options: Options, _folder: str) -> int:
    import json

    from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import now, stamp
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import slurm_wiring
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

    found = slurm_wiring.check(_scontrol(options)(["show", "config"]), Runner().read)
    sys.stdout.write(json.dumps({"findings": [finding.to_dict() for finding in stamp([found], now())]}) + "\n")
    return 0


def _node_condition(options: Options, folder: str) -> int:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import kubernetes

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    node, every = options["node"], _seconds(options, "every") if "every" in options else 0
    updater = kubernetes.Updater(node, kubernetes.in_cluster(os.environ), say)
    while True:
        done = updater.update(_read(folder), time.monotonic())
        if not every:
            return 0 if done else 1
        time.sleep(every)


def _seconds(options: Options, name: str) -> int:
    """A number of seconds. Raises KeyError, or ValueError where it cannot be meant."""
    if not re.match(r"[1-9]\d{0,8}\Z", options[name], re.ASCII):
        raise ValueError(f"--{name}={options[name]}: a number of seconds is needed")
    return int(options[name])


def _metrics(options: Options, folder: str) -> int:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import metrics
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

    if not os.path.isabs(options["to"]):
        raise ValueError(f"--to={options['to']}: an absolute path is needed")
    write_atomic(options["to"], metrics.text(_read(folder)))
    return 0


def _deliver(options: Options, folder: str) -> int:
    import json

    from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import now
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import deliver

    # A verdict that does not hold was judged just now, to be unknown.
    name, to = options.get("name") or os.uname().nodename, options["to"]
    text = json.dumps({"judged_at": now(), **_read(folder), "host": name}, sort_keys=True) + "\n"
    try:
        deliver.deliver(text, name, to, options.get("headers", ""))
    except (OSError, ValueError) as error:
        return _failed("deliver", f"the verdict was not delivered: {error}")
    return 0


def _pulled(options: Options, folder: str) -> int:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import dumps
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import outside, pulled
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

    content = pulled.findings(options["result"], _seconds(options, "valid-for"))
    write_atomic(os.path.join(folder, outside.NAME, "pull.json"), dumps(content))
    return 0


def _failed(command: str, why: str) -> int:
    sys.stderr.write(f"gpufleet-gate {command}: {why}\n")
    return 2


def _power(options: Options, folder: str) -> int:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import timed

    return timed.run(options, folder)


#: Of each its options.
COMMANDS: t.Mapping[str, t.Tuple[t.Callable[[Options, str], int], str]] = {
    "slurm-health": (_slurm_health, "limit unknown scontrol node"),
    "slurm-wiring": (_slurm_wiring, "scontrol"),
    "node-condition": (_node_condition, "node every"),
    "metrics": (_metrics, "to"),
    "deliver": (_deliver, "to name headers"),
    "pulled": (_pulled, "result valid-for"),
    "power": (_power, "redundancy base-load supply-watts expected inlet-max limit valid-for"),
}
