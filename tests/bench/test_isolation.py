"""bench/compare/isolation: the probe's counts, the text about a case, the cleanup of the disk's
helper, and each neighbour once, small, with kstore only.
"""

from __future__ import annotations

import pytest

from bench import brokers, frames
from bench.brokers import KAFKA, KSTORE
from bench.compare import isolation
from bench.compare.isolation import CASES, HALF, Case, OnePair, clients, disk, neighbours
from bench.compare.isolation.holds import Held, Holds, Stolen, parse
from bench.compare.isolation.neighbours import Sizes
from bench.compare.isolation.probe import Probe
from bench.compare.pair import end_offset
from bench.measure import Settings, Side
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kstore_broker import KstoreBroker

LIMITS = disk.Limits(write=1000, read=500)
CALM = {"p50": [1.0, 1.0], "p99": [2.0, 2.0], "p99.9": [3.0, 3.0], "max": [4.0, 5.0],
        "hold": [0.0, 6.0]}  # fmt: skip
POOR = {name: [10 * value for value in values] for name, values in CALM.items()}


def tiny(settings: Settings) -> Sizes:
    sizes = Sizes(settings)
    sizes.seconds = sizes.warm_seconds = 0.2
    sizes.read_bytes = sizes.deleted_bytes = sizes.compacted_bytes = 20_000_000
    sizes.limit_bytes = 4 << 20
    sizes.partitions, sizes.members = 100, 4
    return sizes


def side(values: dict[str, list[float]], rate: float) -> Side:
    return Side(values | {"rate": [rate]})


def said(ours: Side, theirs: Side, case: Case) -> str:
    _, sentence = isolation.rows_of("bulk", case, {KSTORE: ours, KAFKA: theirs}, LIMITS)
    return sentence


BULK = Case(neighbours.one_producer, "MB/s", isolation.TWICE, "write")


def test_a_case_passes_with_half_the_latency_and_twice_the_rate():
    assert said(side(CALM, 300), side(POOR, 100), BULK) == "beside bulk: PASS"


def test_what_falls_short_is_named_with_its_goal():
    sentence = said(side(POOR, 150), side(CALM, 100), BULK)
    assert sentence.startswith("beside bulk: FALLS SHORT: ms p99 20, 10x Kafka's (goal ≤ 0.5x)")
    assert "max of all turns 50, 10x" in sentence
    assert "MB/s 150, 1.5x" in sentence
    assert "ms longest hold of the loop 60, 10x Kafka's (goal ≤ 10)" in sentence


def test_the_disks_limit_is_as_good_as_twice_kafkas_rate():
    rows, sentence = isolation.rows_of(
        "bulk", BULK, {KSTORE: side(CALM, 950), KAFKA: side(POOR, 900)}, LIMITS
    )
    assert sentence == "beside bulk: PASS"
    assert "1000 MB/s" in rows[-1].note
    assert "FALLS SHORT" in said(side(CALM, 850), side(POOR, 800), BULK)


def test_the_producers_own_limit_is_as_good_as_twice_kafkas_rate():
    sides = {KSTORE: side(CALM, 700), KAFKA: side(POOR, 600), isolation.CLIENT: Side()}
    assert "FALLS SHORT" in isolation.rows_of("bulk", BULK, sides, LIMITS)[1]
    sides[isolation.CLIENT] = Side({"rate": [720]})
    rows, sentence = isolation.rows_of("bulk", BULK, sides, LIMITS)
    assert sentence == "beside bulk: PASS"
    assert rows[-1].note == "the disk alone: 1000 MB/s; the client alone: 720 MB/s"
    sides[isolation.CLIENT] = Side({"rate": [800]})
    assert "FALLS SHORT" in isolation.rows_of("bulk", BULK, sides, LIMITS)[1]


@pytest.mark.slow
def test_producers_alone_send_all_to_a_peer_that_keeps_nothing(tmp_path):
    sizes = tiny(Settings(quick=True, scratch=tmp_path))
    assert neighbours.producers_alone(sizes, 2) > 0


def test_the_largest_latency_is_that_of_all_turns():
    rows, _ = isolation.rows_of("bulk", BULK, {KSTORE: side(CALM, 1), KAFKA: Side()}, LIMITS)
    (largest,) = [row for row in rows if row.unit == "ms max of all turns"]
    assert (largest.value, largest.goal) == (5.0, HALF)


def test_a_side_that_failed_is_a_case_that_falls_short_or_is_not_compared():
    failed = Side(state="failed: no luck")
    assert "FALLS SHORT: ms p99: failed: no luck" in said(failed, side(CALM, 1), BULK)
    assert said(side(CALM, 1), failed, BULK) == "beside bulk: not compared"


def test_the_disk_is_measured_and_left_as_it_was(tmp_path):
    found = disk.limits(tmp_path, 4 << 20)
    assert found.write > 0
    assert found.read > 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="--scratch"):
        disk.require_room(tmp_path, 1 << 60)


@pytest.mark.slow
def test_the_probe_counts_what_is_sent_between_its_words(tmp_path):
    with KstoreBroker(tmp_path, overrides=brokers.SAME) as broker:
        brokers.create_topic(broker, "t", 1)
        with Probe(broker, "t") as probe:
            probe.begin()
            while end_offset(broker, "t") < 20:
                pass
            found = probe.finish()
        assert 0 < found["records"] < end_offset(broker, "t")
        assert 0 < found["p50"] <= found["p99"] <= found["max"]

        with Probe(broker, "t") as probe:
            probe.begin()
            brokers.delete_topic(broker, "t")
            with pytest.raises(RuntimeError, match="answered with error"):
                probe.finish()


@pytest.mark.slow
def test_the_reader_reads_everything_once(tmp_path):
    with KstoreBroker(tmp_path, overrides=brokers.SAME) as broker:
        brokers.create_topic(broker, "t", 1)
        end = neighbours.fill(broker, "t", 5_000_000)
        (found,) = clients.run("read", host=broker.host, port=broker.port, topic="t", offsets=end)
        batch = len(frames.record_batch([bytes(neighbours.RECORD_BYTES)] * 900))
        assert found["MB"] * 1e6 == pytest.approx(end / 900 * batch, rel=0.01)
        with pytest.raises(RuntimeError, match=r"read: .*error 3"):
            clients.run("read", host=broker.host, port=broker.port, topic="no", offsets=1)


def test_the_maximum_is_noted_with_what_a_hypervisor_took():
    sides = {KSTORE: side(CALM | {"stolen": [0.02, 0.04]}, 300), KAFKA: side(POOR, 100)}
    rows, _ = isolation.rows_of("bulk", BULK, sides, LIMITS)
    notes = [row.note for row in rows if row.unit == "ms max of all turns"]
    assert notes == [f"cores taken by the hypervisor: {KSTORE} 3.0%, {KAFKA} 0.0%"]
    sides[KSTORE] = side(CALM | {"stolen": [0.0004]}, 300)
    assert {row.note for row in isolation.rows_of("bulk", BULK, sides, LIMITS)[0][:-1]} == {""}


def test_the_share_that_a_hypervisor_took_is_read_from_the_system(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 100 9 10\n")
    stolen = Stolen(stat)
    assert stolen.share() == 0
    stat.write_text("cpu  10 20 30 40 50 60 70 103 90 100\n")
    assert stolen.share() > 0
    assert Stolen(tmp_path / "none").share() == 0


PAGE = """# TYPE kstore_loop_hold_seconds histogram
kstore_loop_hold_seconds_bucket{held_by="Produce",le="0.005"} 3
kstore_loop_hold_seconds_bucket{held_by="Produce",le="0.05"} 4
kstore_loop_hold_seconds_bucket{held_by="Produce",le="+Inf"} 5
kstore_loop_hold_seconds_count{held_by="Produce"} 5
kstore_loop_hold_max_seconds{held_by="Produce"} 0.120000
"""


def test_holds_are_those_since_the_beginning_or_what_bounds_them():
    (before,) = parse(PAGE).values()
    assert before == Held(120.0, {5.0: 3.0, 50.0: 4.0, float("inf"): 5.0})
    assert before.since(None) == 120.0
    assert before.since(before) == 0.0
    longer = parse(PAGE.replace("0.120000", "0.130000"))["Produce"]
    assert longer.since(before) == 130.0
    more = PAGE.replace("} 4", "} 5").replace("} 5", "} 6").replace('"0.05"} 6', '"0.05"} 5')
    assert parse(more)["Produce"].since(before) == 50.0
    assert parse("kstore_requests_total 5\n") == {}


def test_a_brokers_holds_are_read_from_its_metrics(tmp_path):
    broker = KstoreBroker(tmp_path, overrides=brokers.SAME)
    holds = Holds(broker)
    with broker:
        holds.begin()
        topics = (f"t{number}" for number in range(100))
        while not (found := holds.longest()):
            brokers.create_topic(broker, next(topics), 500)
        assert found == sorted(found, reverse=True)
        assert holds.core_wait_share() >= 0
        longest, name = found[0]
        assert longest > 0  # without its wait for a core
        assert name
    assert not Holds(KafkaBroker(tmp_path)).are_known


@pytest.mark.thorough
@pytest.mark.slow
def test_every_neighbour_runs_beside_the_small_records(tmp_path):
    settings = Settings(quick=True, scratch=tmp_path, alone=True)
    pair = OnePair(settings, tiny(settings))
    try:
        pair.start()
        for name, case in CASES.items():
            found = pair.measure(name, case)[KSTORE]
            assert found.state == "", name
            assert found.values["records"][0] > 0
            assert found.values["hold"][0] >= 0
            assert (found.values["rate"][0] > 0) == bool(case.unit)
    finally:
        pair.stop()
    assert list(tmp_path.iterdir()) == []
