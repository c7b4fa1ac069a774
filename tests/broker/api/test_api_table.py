"""The broker's table of APIs against the registry's."""

from __future__ import annotations

from kstore.broker.api import API_TABLE
from kstore.protocol.registry import APIS


def test_every_api_that_is_declared_is_served_in_versions_that_it_has() -> None:
    assert list(API_TABLE) == list(APIS)
    for key, row in API_TABLE.items():
        api = APIS[key]
        assert api.min_version <= row.min_version <= row.max_version <= api.max_version
