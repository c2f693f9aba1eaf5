#!/usr/bin/env bash
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Locks requirements/*.in again, for every Python that ./run takes: pip install uv, then tools/lock.sh [--upgrade].
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../requirements"
lock() {
    uv pip compile --quiet --universal --generate-hashes --only-binary :all: --no-header --no-annotate \
        --no-emit-index-url --python-version "$1" --output-file "$2.txt" "${@:3}" "$2.in"
}
lock 3.8 unit "$@"
for name in pip ansible test; do
    lock 3.11 "$name" "$@"
done
