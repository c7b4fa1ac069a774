"""Changes of quotas: the checks that need more than the request."""

from __future__ import annotations

import pytest

from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.runtime.quotas.client_quotas import ClientQuotas
from kstore.broker.state.quotas.client_quotas import IP, Alteration, QuotaError


def test_an_ip_is_an_address_or_a_name_that_leads_to_one() -> None:
    quotas = ClientQuotas(MemoryStore())
    change = [Alteration("connection_creation_rate", 5.0)]
    with pytest.raises(QuotaError, match="'nowhere' is neither an address"):
        quotas.alter(((IP, "nowhere"),), change, lambda name: False, validate_only=False)
    assert not quotas.quotas
    quotas.alter(((IP, "here"),), change, lambda name: name == "here", validate_only=False)
    assert quotas.quotas == {((IP, "here"),): {"connection_creation_rate": 5.0}}
