"""`bench compare failover`: a few kills, the table it makes, and how a silence is found."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import __main__ as command
from bench.compare import failover
from bench.compare.failover import clients


def silence_s(killed_at: float, *acks: float) -> float:
    client: Any = SimpleNamespace(acks=list(acks))
    return failover._silence_s(client, killed_at)


def test_a_silence_is_the_longest_time_between_two_acknowledgements_from_the_kill_on() -> None:
    assert silence_s(10.0, 1.0, 9.0, 10.5, 11.25, 11.5) == 0.75
    assert silence_s(10.0, 9.0, 11.0, 11.25) == 1.0


def test_a_client_that_never_goes_on_is_not_taken_for_a_quick_one() -> None:
    killed_at = time.monotonic() - 100
    assert silence_s(killed_at, killed_at - 1) >= 100


@pytest.mark.thorough
@pytest.mark.slow
def test_it_kills_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"kstore": clients.KstoreSender, "librdkafka": clients.LibrdkafkaSender}
    monkeypatch.setattr(failover, "usable_clients", lambda: (made, "left out by the test"))
    asked = ["compare", "failover", "--quick", "--results", str(tmp_path), "--case", "LMDB, leader"]
    assert command.main(asked) == 0
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["case"] for row in rows] == [
        f"{name}, LMDB, {victim}" for victim in ("leader", "leader and controller") for name in made
    ]
    assert all(row["value"] > 0 and "of 3" in row["note"] for row in rows)
