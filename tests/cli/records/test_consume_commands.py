"""`kstore consume` against a broker: groups, places to start at, and topics by expression."""

from __future__ import annotations

import itertools
import json
import signal

import pytest

from tests.cli.shell import Shell

pytestmark = pytest.mark.slow
_names = itertools.count(1)


@pytest.fixture
def topic(kstore: Shell) -> str:
    """A topic of one partition with the lines 0 to 9, at the milliseconds 1000 to 1009."""
    name = f"consumed-{next(_names)}"
    kstore("topic", "create", name)
    lines = [json.dumps({"value": str(i), "timestamp": 1000 + i}) for i in range(10)]
    kstore("produce", name, "--json", stdin="\n".join(lines).encode())
    return name


def committed(kstore: Shell, group: str) -> list[tuple[int, int]]:
    """Offsets and members of a group."""
    found = json.loads(kstore("group", "describe", group, "--json"))
    return [(row["committed"], found["members"]) for row in found["offsets"]]


def test_a_group_goes_on_where_it_was_and_is_left(kstore: Shell, topic: str) -> None:
    assert kstore("consume", topic, "--group", topic, "-c", "4") == b"0\n1\n2\n3\n"
    assert committed(kstore, topic) == [(4, 0)]
    assert kstore("consume", topic, "--group", topic, "--exit") == b"4\n5\n6\n7\n8\n9\n"
    assert committed(kstore, topic) == [(10, 0)]
    assert kstore("consume", topic, "--group", topic, "--exit", "-o", "-3") == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_commits_what_was_written_and_leaves(
    kstore: Shell, topic: str, number: int, code: int
) -> None:
    reader = kstore.popen("consume", topic, "-G", topic)
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(10)][9] == b"9\n"
    reader.send_signal(number)
    _, errors = reader.communicate(timeout=30)
    assert (reader.returncode, errors) == (code, b"")
    assert committed(kstore, topic) == [(10, 0)]


def test_a_group_commits_as_it_goes(kstore: Shell, topic: str) -> None:
    """While it waits for more, so that nothing comes twice if it is killed."""
    reader = kstore.popen("consume", topic, "-G", topic)
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(10)][9] == b"9\n"
    while committed(kstore, topic) != [(10, 1)]:
        assert reader.poll() is None


def test_enable_auto_commit_false_commits_nothing(kstore: Shell, topic: str) -> None:
    arguments = ("consume", topic, "-G", topic, "-X", "enable.auto.commit=false", "-c", "2")
    assert kstore(*arguments) == b"0\n1\n"
    assert kstore(*arguments) == b"0\n1\n"


@pytest.mark.parametrize(
    ("place", "first"),
    [
        (("--offset", "earliest"), 0),
        (("--offset", "7"), 7),
        (("--offset", "-2"), 8),
        (("--offset", "@1006"), 6),
        (("--offset", "latest"), 10),
        (("--from-timestamp", "1004"), 4),
        (("--from-timestamp", "1970-01-01T00:00:01.005"), 5),
        (("--from-timestamp", "2100-01-01"), 10),
    ],
)
def test_a_place_to_start_at(kstore: Shell, topic: str, place: tuple[str, str], first: int) -> None:
    expected = b"".join(b"%d\n" % i for i in range(first, 10))
    assert kstore("consume", topic, "--exit", *place) == expected
    # A new group starts there as well.
    assert kstore("consume", topic, "--exit", "-G", f"{topic}-new", *place) == expected


def test_a_format_of_kcat_is_understood(kstore: Shell, topic: str) -> None:
    form = r"%t [%p] at offset %o: key %K bytes, %s at %T%%\n"
    line = f"{topic} [0] at offset 9: key -1 bytes, 9 at 1009%\n"
    assert kstore("consume", topic, "-e", "-o", "9", "-f", form).decode() == line


def test_topics_that_match_are_read_together(kstore: Shell) -> None:
    for name in ("match.a", "match.b", "matches"):
        kstore("produce", name, stdin=name.encode())
    arguments = ("consume", "--topic-regex", r"match\..", "--exit")
    assert sorted(kstore(*arguments).split()) == [b"match.a", b"match.b"]
    assert sorted(kstore(*arguments, "-G", "matching").split()) == [b"match.a", b"match.b"]
    assert kstore("consume", "--topic-regex", "none.*", "--exit") == b""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("t", "-o", "5", "--from-timestamp", "5"), "--offset and --from-timestamp both"),
        (("t", "--from-timestamp", "noon"), "'noon' is not a time"),
        ((), "use either TOPIC or --topic-regex"),
        (("t", "--topic-regex", "t"), "use either TOPIC or --topic-regex"),
        (("--topic-regex", "("), "'(' is not a regular expression"),
        (("t", "-G", "g", "-p", "0"), "--partition is for one TOPIC"),
        (("t", "-X", "group.id=g"), "use --group, not group.id"),
    ],
)
def test_what_does_not_go_together_is_told(
    kstore: Shell, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in " ".join(kstore("consume", *arguments, code=2).decode().split())
