"""Cutting a stream into frames: any way of splitting it gives the same frames, within bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore._fast.protocol.framing import FrameSplitter, frame_size
from kstore.errors import ProtocolError


@settings(deadline=None)
@given(
    frames=st.lists(st.binary(max_size=50), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_any_split_of_a_stream_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    splitter = FrameSplitter()
    found: list[bytes] = []
    for start, end in pairwise(places):
        found += splitter.feed(memoryview(stream)[start:end])
    assert found == frames
    assert splitter.buffered_bytes == 0


@pytest.mark.parametrize("step", [1, 3, 4, 5, 100])
@pytest.mark.parametrize(
    ("size", "what"),
    [
        (-1, "announces -1 bytes: negative"),
        (101, "announces 101 bytes, more than the limit of 100"),
    ],
)
def test_a_bad_length_ends_the_stream(size: int, what: str, step: int) -> None:
    splitter = FrameSplitter(100)
    stream = size.to_bytes(4, "big", signed=True) + b"x"
    pieces = [stream[place : place + step] for place in range(0, len(stream), step)]
    with pytest.raises(ProtocolError, match=what):
        list(map(splitter.feed, pieces))
    with pytest.raises(ProtocolError, match=what):
        splitter.feed(b"\x00\x00\x00\x00")


def test_an_announced_size_alone_holds_no_memory() -> None:
    splitter = FrameSplitter(2**30)
    assert splitter.feed((2**30).to_bytes(4, "big") + b"abc") == []
    assert splitter.buffered_bytes == 7


def test_frame_size_reads_a_length_prefix() -> None:
    assert frame_size(b"\x00\x00\x00", 100) == -1
    assert frame_size(b"..\x00\x00\x00\x05", 100, 2) == 5
    with pytest.raises(ProtocolError, match="more than the limit of 4"):
        frame_size(b"\x00\x00\x00\x05", 4)
