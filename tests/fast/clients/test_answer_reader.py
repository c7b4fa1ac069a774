"""Frames are read from a client's buffer unchanged, wherever the reads split them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.clients.answer_reader import AnswerReader
from kstore._fast.protocol.framing import FrameSplitter
from kstore.errors import ProtocolError

SIZES = st.one_of(st.integers(0, 40), st.integers(8_000, 8_400), st.integers(16_300, 40_000))


def read_into(reader: AnswerReader, data: bytes, cuts: list[int]) -> list[bytes]:
    """All frames of data, read in pieces of at most these sizes, over and over."""
    frames, at, turn = [], 0, 0
    while at < len(data):
        assert len(reader) > 0
        with memoryview(reader) as room:
            size = min(cuts[turn % len(cuts)], len(room), len(data) - at)
            room[:size] = data[at : at + size]
        frames += reader.received(size)
        at, turn = at + size, turn + 1
    return frames


@given(st.lists(SIZES, max_size=8), st.lists(st.integers(1, 50_000), min_size=1, max_size=4))
def test_frames_come_out_whole_and_in_order(sizes: list[int], cuts: list[int]) -> None:
    wanted = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in wanted)
    if len(data) > 20_000:
        cuts = [max(cut, 100) for cut in cuts]
    assert read_into(AnswerReader(), data, cuts) == wanted


@given(st.binary(max_size=300), st.lists(st.integers(1, 300), min_size=1, max_size=4))
def test_any_bytes_mean_what_the_frame_splitter_says(data: bytes, cuts: list[int]) -> None:
    splitter, reader = FrameSplitter(200), AnswerReader(200)
    try:
        wanted: list[bytes] | None = splitter.feed(data)
    except ProtocolError:
        wanted = None
    if wanted is not None:
        assert read_into(reader, data, cuts) == wanted
        return
    with pytest.raises(ProtocolError):
        read_into(reader, data, cuts)
    with pytest.raises(ProtocolError):
        reader.received(0)


def test_more_than_the_buffer_holds_is_refused() -> None:
    reader = AnswerReader()
    with pytest.raises(ValueError, match="don't fit"):
        reader.received(len(reader) + 1)
    with pytest.raises(ValueError, match="don't fit"):
        reader.received(-1)
