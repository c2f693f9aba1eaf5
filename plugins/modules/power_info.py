#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: power_info
short_description: Observes the power supplies and the cooling of a host through its BMC, and judges them
version_added: "0.1.0"
description:
  - Asks the BMC through Redfish or IPMI, from the host itself or (delegated) from the controller, what supplies, fans,
    inlet air and leak detectors it sees. It changes nothing, and never clears an event log.
  - Judges whether the supplies that work carry the GPUs at their power limits and the rest of the host, with the
    reserve that the site wants.
  - A BMC that is silent, slow or says nonsense is unknown and only reported. The module does not fail for it.
  - A login that a BMC refuses is not tried again there for an hour, and after two BMCs that refuse it, and none that
    takes it, on no other, so that no fleet is locked out. Until it was taken once, BMCs are asked one after the other.
    This is remembered in C($XDG_STATE_HOME/gpufleet) of the user that asks, without the password.
options:
  host:
    description:
      - Name or address of the BMC. Empty, the machine's own BMC is read in-band with C(ipmitool); a virtual machine
        and a machine without a BMC are not applicable.
    type: str
    default: ""
  protocol:
    description: How to ask O(host).
    type: str
    choices: [redfish, ipmi]
    default: redfish
  port:
    description: Port of the BMC. Not given, it is 443 for Redfish and 623 for IPMI.
    type: int
  user:
    description: User of the BMC. Reading is enough for it (Redfish role ReadOnly, IPMI privilege user).
    type: str
    default: ""
  password:
    description: Password of O(user). It is sent over verified TLS only, and given to C(ipmitool) in its environment.
    type: str
    default: ""
  verify_tls:
    description: Whether the certificate of the BMC must be trusted. When V(false), anybody between sees the password.
    type: bool
    default: true
  ca_file:
    description: File with the authorities that sign BMCs. Not given, the system's own are taken.
    type: path
  cipher:
    description: IPMI cipher suite. Old BMCs know V(3) only.
    type: int
    choices: [3, 17]
    default: 17
  timeout:
    description: Seconds for the whole reading.
    type: int
    default: 60
  observed:
    description: What M(gpufleet.pytorch.gpu_info) returned of the host. Not given, this machine is observed.
    type: dict
  gpu_limit:
    description: Watts that were set on each GPU after O(observed) was made. 0 for those in O(observed).
    type: float
    default: 0
  redundancy:
    description:
      - What the supplies must carry the load with. V(n) is those at work, V(n+1) those at work less one, V(2n) those of
        one feed of two. V(shelf) is for the BMC of a power shelf that feeds O(shelf_hosts), less one supply.
    type: str
    choices: [n, n+1, 2n, shelf]
    default: n+1
  base_load:
    description:
      - Watts that a host draws under load beside its GPUs. 0 for what the BMC measures, which counts only where the
        GPUs work at the time.
    type: float
    default: 0
  supply_watts:
    description: Watts that one supply gives at this site's input. 0 for what the BMC tells; IPMI tells nothing of it.
    type: float
    default: 0
  supplies_expected:
    description: Number of supplies that must be there. 0 for any.
    type: int
    default: 0
  shelf_hosts:
    description: Number of hosts like this one that the shelf feeds.
    type: int
    default: 0
  inlet_max:
    description: Degrees C of the entering air, above which there is a warning. What the BMC calls critical is a fault.
    type: float
    default: 35
  policy:
    description: Which checks may keep the host from being ready, as in M(gpufleet.pytorch.gpu_info).
    type: dict
    default: {}
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details: It only looks.
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Read the machine's own BMC
  gpufleet.pytorch.power_info:
    base_load: 1800
    supply_watts: 3000

- name: Read the BMC over the network, from the controller
  gpufleet.pytorch.power_info:
    host: "{{ inventory_hostname }}-bmc.example.com"
    user: monitor
    password: "{{ vault_bmc_password }}"
    ca_file: /etc/ssl/bmc-ca.pem
    observed: "{{ gpufleet_observed }}"
  delegate_to: localhost
"""

RETURN = r"""
power:
  description: What the BMC tells; C(docs/architecture.md) gives every field.
  type: dict
  returned: always
  contains:
    source:
      description: V(redfish), V(ipmi) or V(none).
      type: str
    state:
      description: V(ok), or why there is no reading.
      type: str
    supplies:
      description: Power supplies.
      type: list
      elements: dict
findings:
  description: What follows for the supplies and the cooling.
  type: list
  elements: dict
  returned: always
"""

import math
import os
import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import cooling, supplies
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import login, timed
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.read import Ipmi, read
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.web import Bmc
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import observe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: A name, an IPv4 or an IPv6 address: nothing that a command or an address line would take for something else.
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9]+)?\Z")
#: Against NaN or infinity nothing would ever be too much.
FLOATS = ("gpu_limit", "base_load", "supply_watts", "inlet_max")
PORTS = {"redfish": 443, "ipmi": 623}


def main() -> None:
    """Ask, judge, answer."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "default": ""},
            "protocol": {"type": "str", "choices": ["redfish", "ipmi"], "default": "redfish"},
            "port": {"type": "int"},
            "user": {"type": "str", "default": ""},
            "password": {"type": "str", "default": "", "no_log": True},
            "verify_tls": {"type": "bool", "default": True},
            "ca_file": {"type": "path"},
            "cipher": {"type": "int", "choices": [3, 17], "default": 17},
            "timeout": {"type": "int", "default": 60},
            "observed": {"type": "dict"},
            "gpu_limit": {"type": "float", "default": 0},
            "redundancy": {"type": "str", "choices": list(supplies.REDUNDANCIES), "default": "n+1"},
            "base_load": {"type": "float", "default": 0},
            "supply_watts": {"type": "float", "default": 0},
            "supplies_expected": {"type": "int", "default": 0},
            "shelf_hosts": {"type": "int", "default": 0},
            "inlet_max": {"type": "float", "default": cooling.INLET_MAX_C},
            "policy": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    options = module.params
    wrong = _wrong(options)
    if wrong:
        module.fail_json(msg=wrong)
    runner = Runner()
    observed = options["observed"] or observe(runner)
    bmc = Bmc(
        options["host"],
        options["port"] or PORTS["redfish"],
        options["user"],
        options["password"],
        options["verify_tls"],
        options["ca_file"] or "",
        options["timeout"],
    )
    ipmi = Ipmi(options["port"] or PORTS["ipmi"], options["cipher"])
    virtualization = str((observed.get("host") or {}).get("virtualization", "unknown"))
    reading = read(options["protocol"], bmc, ipmi, runner, virtualization, login.folder(os.environ))
    load = supplies.load_of(observed, options["base_load"] or None, options["gpu_limit"])
    if reading["where"] == "in-band":  # what a timer saw on this very machine
        load = load._replace(measured_w=timed.measured(runner))
    policy = supplies.Policy(
        options["redundancy"], options["supply_watts"], options["supplies_expected"], options["shelf_hosts"]
    )
    found = [*supplies.check(reading, load, policy), *cooling.check(reading, options["inlet_max"])]
    found = _finding.apply_policy(_finding.stamp(found, reading["observed_at"]), options["policy"])
    module.exit_json(changed=False, power=reading, findings=[finding.to_dict() for finding in found])


def _wrong(options: t.Mapping[str, t.Any]) -> str:
    """What cannot be meant, for a person; "" where all can."""
    if options["host"] and not HOST.match(options["host"]):
        return f"host is {options['host']!r}; a name or an address of a BMC is needed, without scheme, port or path"
    if options["host"] and not (options["user"] and options["password"]):
        return f"the BMC {options['host']} needs user and password; nothing was asked"
    if options["timeout"] <= 0:
        return f"timeout is {options['timeout']}; seconds above 0 are needed"
    endless = [f"{name} is {options[name]}" for name in FLOATS if not math.isfinite(options[name])]
    if endless:
        return f"a number is needed: {', '.join(endless)}"
    names = ("gpu_limit", "base_load", "supply_watts", "supplies_expected", "shelf_hosts")
    negative = [f"{name} is {options[name]}" for name in names if options[name] < 0]
    if negative:
        return f"not below 0: {', '.join(negative)}"
    bad = [f"{check}: {value}" for check, value in options["policy"].items() if value not in _finding.POLICIES]
    return f"policy is {' or '.join(_finding.POLICIES)}, by check; found {', '.join(bad)}" if bad else ""


if __name__ == "__main__":
    main()
