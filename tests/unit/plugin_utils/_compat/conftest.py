# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the tests of the judge ask: options in, the plan or the conflict out, as the lookup answers."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import (
    answer,
    host,
    loader,
    plan,
    request,
    resolver,
)
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import remedies as remedies_


@pytest.fixture(scope="session")
def ask():
    return answer.answer


@pytest.fixture(scope="session")
def ask_fast():
    """The same answer without remedies, which cost most of the time: for many thousand questions."""

    def find(torch, options):
        outcome = resolver.resolve(host.host(request.request(torch, options), loader.load()))
        return plan.plan(outcome) if outcome.best else answer.of_causes(outcome.causes)

    return find


@pytest.fixture(scope="session")
def remedies():
    """Remedies of a question: the sentence, the request that it leads to, and the answer to that."""

    def find(torch, options):
        data = loader.load()
        outcome = resolver.resolve(host.host(request.request(torch, options), data))
        if outcome.best is None:
            for remedy in remedies_.remedies(outcome):
                yield remedy.says, remedy.request, answer.answer_request(remedy.request, data)

    return find
