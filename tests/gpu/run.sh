#!/usr/bin/env bash
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Everything that wants a real GPU, in one go: plan, site, drift with an environment that is there, then the proof's
# figures beside a hand-written loop, and faults that it has to find. Within 8 minutes, without a network. On a machine
# without a GPU it is a dry run on the CPU.
#
#   tests/gpu/run.sh PYTHON [FOLDER]
#
# PYTHON: interpreter with torch. FOLDER: where logs and result.json go (a new temporary folder by default).
# Ansible comes from ./run, offline: PIP_NO_INDEX=1 PIP_FIND_LINKS=WHEELS, or from PATH where ansible-playbook is there.
set -euo pipefail

python=${1:?usage: tests/gpu/run.sh PYTHON [FOLDER]}
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
out=${2:-$(mktemp -d)}
mkdir -p -- "$out"
out=$(cd -- "$out" && pwd -P)
begun=$SECONDS

version=$("$python" -I -c 'import torch; print(torch.__version__.split("+")[0])')
if command -v ansible-playbook > /dev/null && [[ ! -d $root/.venv ]]; then
    start=()
    mkdir -p -- "$out/collections/ansible_collections/gpufleet"
    ln -sfn -- "$root" "$out/collections/ansible_collections/gpufleet/pytorch"
    export ANSIBLE_COLLECTIONS_PATH=$out/collections PYTHONPATH=$out/collections
    controller=python3
else
    start=("$root/run")
    export PYTHONPATH=$root/collections
    controller=python
fi
export ANSIBLE_CONFIG=$root/ansible.cfg ANSIBLE_NOCOLOR=1

failed=()
cd -- "$out"
for playbook in plan site drift; do
    printf '== %s\n' "$playbook"
    timeout 240 "${start[@]}" ansible-playbook "$root/$playbook.yml" -i "$root/inventories/local" \
        -e "pytorch_python='$python'" -e "pytorch_version='$version'" -e "gate_directory='$out/state'" -e gate_install=false \
        > "$out/$playbook.log" 2>&1 || failed+=("$playbook")
    tail -n 25 "$out/$playbook.log"
done
printf '== figures and faults\n'
timeout 240 "${start[@]}" "$controller" "$root/tests/gpu/measure.py" "$python" "$out" || failed+=(measure)
printf '%s s, logs in %s\n' "$((SECONDS - begun))" "$out"
if ((${#failed[@]})); then
    printf 'FAILED: %s\n' "${failed[*]}"
    exit 1
fi
