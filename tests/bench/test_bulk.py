"""bench/compare/bulk: the bare server stores what it was sent and answers each frame once, and the
rows count records of kstore by log end offsets.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from bench.brokers import KSTORE
from bench.compare.bulk import batches as bulk
from bench.compare.pair import Pair
from bench.measure import Settings


def frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ihhi", 8 + len(body), 0, 9, correlation_id) + body


def test_a_bare_server_answers_each_frame_and_has_it_in_its_file(tmp_path: Path) -> None:
    server = bulk._BareServer(tmp_path / "bare", 20)
    try:
        sent = frame(7, b"a" * 3000) + frame(8, b"b") + frame(9, b"c" * 2_000_000)
        with socket.create_connection(server.address, timeout=60) as connection:
            connection.sendall(sent)
            answers = connection.makefile("rb").read(60)
        assert answers == b"".join(struct.pack(">ii", 16, i) + bytes(12) for i in (7, 8, 9))
        assert (tmp_path / "bare").read_bytes()[: len(sent)] == sent
    finally:
        server.close()
    assert not (tmp_path / "bare").exists()
    assert server.process.returncode is not None


@pytest.mark.slow
@pytest.mark.parametrize("case", bulk.CASES, ids=["16 KB", "900 KB"])
def test_a_case_takes_turns_with_the_bare_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: bulk._Case
) -> None:
    monkeypatch.setattr(bulk, "CASES", [case._replace(records=case.records // 8)])
    settings = Settings(quick=True, scratch=tmp_path, alone=True)
    monkeypatch.setattr(settings, "pick", lambda full, quick: 4 if full == 500 else 1)
    with Pair(tmp_path / "pair", settings) as pair:
        found = list(bulk.rows(pair, settings))
        assert set(pair.running) == {KSTORE}
    assert [(row.group, row.unit, row.state) for row in found] == [
        ("bulk", case.unit, ""), ("bulk", "MB/s", "")]  # fmt: skip
    assert found[1].value
