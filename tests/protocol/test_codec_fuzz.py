"""Decoders under hostile bytes: a ProtocolError or a message, never anything else, and never more
memory than the bytes present can justify.
"""

from __future__ import annotations

import contextlib
import itertools
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kstore.errors import ProtocolError
from kstore.protocol import registry
from kstore.protocol.schema import Message
from tests.reference.messages import all_messages, messages, versions_of

# The largest structure of many defaults costs about this much per byte of frame.
BYTES_PER_FRAME_BYTE = 1200
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

FEW_AND_SLOW = [
    cls if number % 4 == 0 else pytest.param(cls, marks=pytest.mark.slow)
    for number, cls in enumerate(all_messages())
]
"""All messages, most of them only in `make test`: the strategy of each costs more than its cuts."""


def first_and_last(cls: type[Message]) -> list[int]:
    """The first and the last version: without and with flexible fields, where there are both."""
    return sorted({cls.MIN_VERSION, cls.MAX_VERSION})


@RELAXED
@given(data=st.data())
def test_random_bytes_give_a_message_or_a_protocol_error(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(all_messages()))
    version = data.draw(st.sampled_from(versions_of(cls)))
    raw = data.draw(st.binary(max_size=200))
    try:
        message, end = cls.decode_prefix(raw, version)
    except ProtocolError:
        return
    assert 0 <= end <= len(raw)
    message.encode(version)


@RELAXED
@given(data=st.data())
def test_a_changed_message_gives_a_message_or_a_protocol_error(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(all_messages()))
    version = data.draw(st.sampled_from(versions_of(cls)))
    raw = bytearray(data.draw(messages(cls, version)).encode(version))
    for _ in range(data.draw(st.integers(1, 4))):
        if raw:
            place = data.draw(st.integers(0, len(raw) - 1))
            raw[place] = data.draw(st.integers(0, 255))
    try:
        message = cls.decode(bytes(raw), version)
    except ProtocolError:
        return
    message.encode(version)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("cls", FEW_AND_SLOW, ids=lambda cls: cls.__name__)
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_cut_of_a_message_is_a_protocol_error(
    cls: type[Message], data: st.DataObject
) -> None:
    for version in first_and_last(cls):
        raw = data.draw(messages(cls, version)).encode(version)
        for size in range(len(raw)):
            with pytest.raises(ProtocolError):
                cls.decode(raw[:size], version)


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_lying_counts_allocate_no_more_than_the_frame_justifies(cls: type[Message]) -> None:
    frames = [byte * 400 for byte in (b"\x00", b"\x7f", b"\xff", b"\x01", b"\x00\x00\x01\x80")]
    frames += [b"\x00" * 8 + b"\x7f\xff\xff\xff" * 20, b"\xff\xff\xff\xff\x0f" * 80]
    for version, frame in itertools.product(first_and_last(cls), frames):
        tracemalloc.start()
        try:
            with contextlib.suppress(ProtocolError):
                cls.decode_prefix(frame, version)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= 65536 + BYTES_PER_FRAME_BYTE * len(frame), (version, frame)


@RELAXED
@given(raw=st.binary(max_size=100))
def test_random_request_frames_give_a_request_or_a_protocol_error(raw: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        registry.decode_request(raw)


@RELAXED
@given(data=st.data())
def test_any_message_in_any_version_is_decoded_to_itself(data: st.DataObject) -> None:
    cls: Any = data.draw(st.sampled_from(all_messages()))
    version = data.draw(st.sampled_from(versions_of(cls)))
    message = data.draw(messages(cls, version))
    assert cls.decode(message.encode(version), version) == message
