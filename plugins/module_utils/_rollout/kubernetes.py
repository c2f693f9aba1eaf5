# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining and resuming a node of Kubernetes, on a host whose kubectl may do so.

A cordon has no reason of its own, so ours lies in an annotation, which is written before the cordon. Sources: kubectl's
reference of cordon and drain, and "Safely Drain a Node" of the Kubernetes documentation.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout.drain import (
    Drain,
    Run,
    SchedulerError,
    of_rollout,
    ours,
)

REASON = "gpufleet.pytorch/drain-reason"
#: The annotation of pods that the kubelet runs from files, which no drain moves.
MIRROR = "kubernetes.io/config.mirror"


def _node(run: Run, name: str) -> t.Tuple[bool, str]:
    """Whether the node is cordoned, and our reason on it."""
    node = json.loads(run(["kubectl", "get", "node", name, "--output=json"]))
    reason = str((node["metadata"].get("annotations") or {}).get(REASON, ""))
    return bool((node.get("spec") or {}).get("unschedulable")), reason


def pods(listed: t.Mapping[str, t.Any]) -> t.List[str]:
    """What holds a node, of ``kubectl get pods --output=json``: not what is finished, of a DaemonSet, or a mirror."""
    held = []
    for pod in listed.get("items", []):
        meta = pod["metadata"]
        owners = {owner.get("kind") for owner in meta.get("ownerReferences") or []}
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or "DaemonSet" in owners:
            continue
        if MIRROR not in (meta.get("annotations") or {}):
            held.append(f"pod {meta.get('namespace', 'default')}/{meta['name']}")
    return held


def drain(run: Run, name: str, reason: str, evict: bool) -> Drain:
    """Cordon the node with our reason and, where asked, evict its pods; a cordon of somebody else stays as it is."""
    cordoned, there = _node(run, name)
    if cordoned and not ours(there):
        return Drain(held="cordoned by somebody else")
    changed = not cordoned or there != reason
    if there != reason:
        run(["kubectl", "annotate", "node", name, f"{REASON}={reason}", "--overwrite"])
    if not cordoned:
        run(["kubectl", "cordon", name])
    listing = ["kubectl", "get", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={name}", "--output=json"]
    busy = pods(json.loads(run(listing)))
    if busy and evict:
        # Through the Eviction API, which keeps to disruption budgets. What is not gone in time is asked for again.
        problem = ""
        try:
            run(["kubectl", "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=20s"])
        except SchedulerError as error:
            problem = str(error)
        busy = pods(json.loads(run(listing)))
        if busy and problem:
            busy.append(problem)
    return Drain(changed, busy)


def resume(run: Run, name: str) -> Drain:
    """Take a rollout's cordon away; any other stays."""
    cordoned, there = _node(run, name)
    if cordoned and not of_rollout(there):
        return Drain(held=there or "cordoned by somebody else")
    if cordoned:
        run(["kubectl", "uncordon", name])
    if of_rollout(there):
        run(["kubectl", "annotate", "node", name, f"{REASON}-"])
    return Drain(changed=cordoned)
