"""`kstore replicate` and `kstore verify-order` as a user types them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
import typer

from kstore.cli.records.replicate import parse_rate
from kstore.cli.records.verify_order import field_reader, number_of
from kstore.types import Header
from tests.cli.shell import run_here
from tests.clients.replicator.sides import brokers as brokers  # a fixture
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = pytest.mark.slow


class Row(NamedTuple):
    """The compared part of a record."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10MB", 1e7), ("512KiB", 524288), ("1000", 1000), ("1.5 GB/s", 1.5e9), (None, None)],
)
def test_rates(text: str | None, rate: float | None) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0", "-1MB", "10XB"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_rate(text)


def test_fields_are_found_where_they_are() -> None:
    row = Row(b"k", b'{"a": {"n": 7}, "id": "x"}', (Header("seq", b"12"),))
    assert field_reader("key")(row) == b"k"
    assert field_reader("value")(row) == row.value
    assert field_reader("header:seq")(row) == b"12"
    assert field_reader("json:a.n")(row) == b"7"
    assert field_reader("json:id")(row) == b"x"
    assert field_reader("json:none")(row) is None
    assert field_reader("json:a")(Row(value=b"no json")) is None
    assert [number_of(text) for text in (b"12", b"x", None)] == [12, None, None]
    with pytest.raises(ValueError, match="is not value, key"):
        field_reader("header:")


def write(bootstrap: str, topic: str, rows: list[tuple[bytes, bytes]], partitions: int = 1) -> None:
    """Create a topic with these keys and values."""
    from kstore.clients import AdminClient, NewTopic, Producer

    with AdminClient(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions)])
    with Producer(bootstrap) as producer:
        for key, value in rows:
            producer.send(topic, value, key)


def kstore(*arguments: str, code: int = 0) -> str:
    """Run a command to its end and return its output (its errors if it failed)."""
    done = run_here(*arguments)
    output, errors = done.output.decode(), done.errors.decode()
    assert done.code == code, errors + output
    return errors + output if code else output


def verified(said: str) -> dict[str, Any]:
    return json.loads(said.splitlines()[0])


def test_topics_are_copied_and_the_copy_is_in_order(
    brokers: tuple[KstoreBroker, KstoreBroker],
) -> None:
    here, there = (broker.bootstrap for broker in brokers)
    write(here, "orders", [(b"%d" % (n % 5), b"%d" % (n // 5)) for n in range(100)], 3)
    copy = ("replicate", "--from", here, "--to", there, "--until-caught-up", "--regex", "ord.*")
    said = [json.loads(line) for line in kstore(*copy, "--json").splitlines()]
    assert said[0] == {
        "event": "topic", "text": "created topic orders with 3 partitions", "topic": "orders",
    }  # fmt: skip
    assert (said[-1]["event"], said[-1]["records"], said[-1]["lag"]) == ("done", 100, 0)
    assert kstore(*copy).startswith("0 records")
    found = verified(kstore("verify-order", "orders", "-b", there, "--first", "0", "--json"))
    assert (found["records"], found["keys"], found["out_of_order"]) == (100, 5, 0)
    assert "the same cluster" in kstore("replicate", "x", "--from", here, "--to", here, code=1)


def test_order_is_checked_in_a_log_and_as_a_group_sees_it(
    brokers: tuple[KstoreBroker, KstoreBroker],
) -> None:
    where = ("-b", brokers[0].bootstrap)
    numbers = (b"0", b"2", b"1", b"1", b"5")
    write(where[1], "bad", [*((b"k", number) for number in numbers), (b"x", b"a")])
    said = kstore("verify-order", "bad", *where, "--json", code=1)
    found = verified(said)
    assert [found[name] for name in ("out_of_order", "duplicates", "missing", "unreadable")] == [
        1, 1, 2, 1,
    ]  # fmt: skip
    assert found["findings"][0] | {"topic": "bad"} == found["findings"][0]
    group = ("--group", "g", "--idle-ms", "1500")
    assert "key 'k': 1 arrived after 2 at bad-0 offset 2" in kstore(
        "verify-order", "bad", *where, *group, code=1
    )
    write(where[1], "empty", [])
    assert "nothing was checked" in kstore("verify-order", "empty", *where, code=2)
    assert "is not value, key" in kstore("verify-order", "bad", *where, "--key", "what", code=2)


def test_a_generated_workload_is_read_in_order(brokers: tuple[KstoreBroker, KstoreBroker]) -> None:
    where = ("-b", brokers[0].bootstrap)
    write(where[1], "made", [], 2)
    for _ in range(2):  # the records of the first run don't disturb the second
        said = kstore("verify-order", "made", *where, "--generate", "2000", "--keys", "7", "--json")
        assert verified(said)["records"] == 2000
