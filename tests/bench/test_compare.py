"""bench/compare: what its command line selects, how a row is made from two sides, and a short run
of many rows with kstore only.
"""

from __future__ import annotations

import importlib
import json

import pytest

from bench import __main__ as command
from bench.brokers import KAFKA, KSTORE
from bench.compare import ROWS
from bench.compare.pair import LESS, Pair, compared
from bench.compare.rebalance.members import ClassicMember, Group
from bench.compare.run import run
from bench.measure import Settings, Side


def test_compare_alone_is_all_rows_and_a_row_alone_is_compare():
    assert command.chosen(["compare"]) == (["compare"], list(ROWS))
    assert command.chosen(["latency", "commits"]) == (["compare"], ["latency", "commits"])
    assert command.chosen(["compare", "small"]) == (["compare"], ["small"])
    assert command.chosen([]) == (list(command.GROUPS), list(ROWS))
    assert command.chosen(["codec"])[0] == ["codec"]


def test_an_unknown_row_is_refused_with_those_there_are(capsys):
    assert command.main(["compare", "latencies"]) == 2
    said = capsys.readouterr().err
    assert "'latencies'" in said
    assert "latency" in said


def test_a_scratch_folder_is_made_or_the_command_says_why_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "GROUPS", {})
    made = tmp_path / "not" / "there"
    asked = ["--results", str(tmp_path / "results"), "--scratch"]
    assert command.main([*asked, str(made)]) == 0
    assert made.is_dir()
    (tmp_path / "file").touch()
    assert command.main([*asked, str(tmp_path / "file")]) == 2
    assert "can't be made" in capsys.readouterr().err


def test_every_row_of_the_table_has_its_module():
    for name in ROWS:
        assert callable(importlib.import_module(f"bench.compare.{name}").rows)


def test_a_row_has_both_medians_spreads_and_states():
    sides = {KSTORE: Side({"p50": [1.0, 3.0, 2.0]}), KAFKA: Side({"p50": [8.0, 4.0]})}
    row = compared("latency", "c", sides, "p50", "ms", LESS)
    assert (row.value, row.spread) == (2.0, (1.0, 3.0))
    assert (row.peer_value, row.peer_spread) == (6.0, (4.0, 8.0))
    assert (row.ratio, row.reached) == (pytest.approx(1 / 3), True)

    sides = {KSTORE: Side(state="not served"), KAFKA: Side({"p50": [8.0]})}
    row = compared("latency", "c", sides, "p50", "ms", LESS)
    assert (row.value, row.state, row.peer_value, row.reached) == (None, "not served", 8.0, False)

    row = compared("latency", "c", {KSTORE: Side({"p50": [1.0]})}, "p50", "ms", LESS)
    assert (row.value, row.peer_value, row.reached) == (1.0, None, None)


def test_a_row_that_fails_does_not_end_the_others(tmp_path, monkeypatch, capsys):
    def broken(pair: Pair, settings: Settings) -> list[object]:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("bench.compare.startup.rows", broken)
    monkeypatch.setattr("bench.compare.restart.rows", lambda pair, settings: iter(["a row"]))
    found: list[object] = []
    settings = Settings(quick=True, scratch=tmp_path, alone=True)
    assert run(["restart", "startup"], settings, found, {}) == ["startup"]
    assert found == ["a row"]
    assert "no such luck" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_run_writes_what_it_has(tmp_path, monkeypatch, capsys):
    def some(pair: Pair, settings: Settings):
        yield compared("startup", "c", {KSTORE: Side({"s": [1.0]})}, "s", "s", LESS)
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.compare.startup.rows", some)
    results = tmp_path / "results"
    assert command.main(["startup", "--without-kafka", "--results", str(results)]) == 130
    document = json.loads((results / "results.json").read_text())
    assert [row["case"] for row in document["rows"]] == ["c"]
    assert "interrupted" in document["settings"]
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("end", [KeyboardInterrupt, RuntimeError])
def test_a_group_that_ends_early_keeps_its_rows(tmp_path, monkeypatch, capsys, end):
    def some(settings: Settings):
        yield compared("codec", "c", {KSTORE: Side({"s": [1.0]})}, "s", "s", LESS)
        raise end

    monkeypatch.setattr("bench.codec.rows", some)
    results = tmp_path / "results"
    code = command.main(["codec", "--results", str(results)])
    document = json.loads((results / "results.json").read_text())
    assert [row["case"] for row in document["rows"]] == ["c"]
    expected = {KeyboardInterrupt: (130, "interrupted"), RuntimeError: (1, "failed")}
    assert (code, expected[end][1] in document["settings"]) == (expected[end][0], True)
    capsys.readouterr()


@pytest.mark.slow
def test_a_group_of_raw_members_forms_and_closes_ranks(tmp_path):
    with Pair(tmp_path, Settings(quick=True, scratch=tmp_path, alone=True)) as pair:
        pair.start()
        broker = pair.running[KSTORE]
        with Group(broker, ClassicMember, "g", "t", 7, 3) as group:
            assert not group.is_stable()
            assert group.form() > 0
            assert sorted(len(member.owned) for member in group.members) == [2, 2, 3]
            assert group.lose_one() > 0
            assert sorted(len(member.owned) for member in group.members) == [3, 4]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_quick_run_on_kstore_alone_counts_everything_and_says_what_is_not_there(tmp_path, capsys):
    words = ["librdkafka producer, 1 KB, acks=all", "librdkafka consumer, 1 KB", "raw sockets",
             "Metadata, 16", "Produce 100 B, 16", "classic", "16 connections", "1,000 partitions",
             "one batch", "8 members"]  # fmt: skip
    names = [*ROWS]
    names.remove("startup")
    names.remove("isolation")  # test_isolation.py runs it
    names.remove("bulk")  # and test_bulk.py this one
    names.remove("scale")  # test_scale.py this one
    names.remove("failover")  # and test_failover.py this one
    cases = [part for word in words for part in ("--case", word)]
    asked = [*names, "--quick", "--without-kafka", "--results", str(tmp_path), *cases]
    assert command.main(asked) == 0
    said = capsys.readouterr()
    document = json.loads((tmp_path / "results.json").read_text())
    rows = document["rows"]
    assert [row for row in rows if row["state"].startswith("failed")] == [], said.err
    measured = {row["group"] for row in rows if row["value"] is not None}
    assert measured >= {"throughput", "small", "latency", "rebalance", "commits", "share", "memory",
                        "partitions", "restart"}  # fmt: skip
    assert all(row["goal"] and row["peer_value"] is None for row in rows)
    assert "log.segment.bytes=" in document["settings"]["settings of kstore"]
