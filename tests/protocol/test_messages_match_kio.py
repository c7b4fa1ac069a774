"""Our encoding against the independent `kio` package: same bytes for random messages, both ways.

kio's classes restrict some fields (error codes, durations, moments) more than the protocol does, so
those get narrower values here. kstore's own tagged fields are left out.
"""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message
from tests.reference.messages import messages, versions_of


def kio_class(message: type[Message], version: int) -> Any:
    """kio's class for a request or response."""
    is_request = message.__name__.endswith("Request")
    load = load_request_schema if is_request else load_response_schema
    return load(message.API_KEY, version)


def narrower(struct: str, name: str) -> st.SearchStrategy[Any] | None:
    """Values that kio's types accept."""
    if name.endswith("error_code"):
        return st.integers(-1, 100)
    if name.endswith("_ms") or "timeout" in name:
        return st.integers(0, 10**9)
    if "timestamp" in name:
        return st.integers(0, 10**12)
    return None


def marks(cls: type[Message], version: int) -> list[pytest.MarkDecorator]:
    """The versions between the first, the first flexible and the last one are for test-all."""
    quick = {cls.MIN_VERSION, cls.FLEXIBLE_FROM, cls.MAX_VERSION}
    return [] if version in quick else [pytest.mark.slow, pytest.mark.thorough]


WITHOUT_PEER = {4, 5, 6, 7, 25300, 25301, 25302}
"""API keys that Kafka 4 has no schema of, and kio neither: its ZooKeeper era's, and kstore's own.
"""


def cases() -> list[Any]:
    """(message, version) for each request and response."""
    found = []
    for api in APIS.values():
        if api.key in WITHOUT_PEER:
            continue
        for cls in (api.request, api.response):
            found += [
                pytest.param(
                    cls, version, id=f"{cls.__name__}-{version}", marks=marks(cls, version)
                )
                for version in versions_of(cls)
            ]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "version"), cases())
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_bytes_equal_kios_and_decode_to_the_same_message(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(cls, version, extensions=False, override=narrower))
    encoded = message.encode(version)
    assert cls.decode(encoded, version) == message

    peer = kio_class(cls, version)
    theirs, size = entity_reader(peer)(encoded, 0)
    assert size == len(encoded)
    again = io.BytesIO()
    entity_writer(peer)(again, theirs)
    assert again.getvalue() == encoded
