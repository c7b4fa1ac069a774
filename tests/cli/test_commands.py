"""The commands against a running broker, each as a user types it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from uuid import uuid4

import pytest

from kstore.__main__ import main
from kstore.clients import Consumer
from tests.cli.shell import Shell, run_here
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = pytest.mark.slow


def test_a_topics_life(kstore: Shell) -> None:
    assert (
        kstore("topic", "create", "life", "-p", "2", "-c", "retention.ms=1000") == b"created life\n"
    )
    assert b"life" in kstore("topic", "create", "life", code=1)
    assert kstore("topic", "create", "life", "--if-not-exists") == b"life exists\n"
    assert b"life\n" in kstore("topic", "list")
    found = json.loads(kstore("topic", "describe", "life", "--json"))
    assert found["configs"] == {"retention.ms": "1000"}
    ends = [(p["partition"], p["log_start_offset"], p["end_offset"]) for p in found["partitions"]]
    assert ends == [(0, 0, 0), (1, 0, 0)]
    assert kstore("topic", "delete", "life") == b"deleted life\n"
    assert b"life" in kstore("topic", "describe", "life", code=1)
    assert kstore("topic", "delete", "life", "--if-exists") == b""


def test_lines_go_in_and_come_out(kstore: Shell) -> None:
    lines = b"".join(b"key-%d:value %d\n" % (i, i) for i in range(2000))
    kstore("produce", "lines", "-K", ":", "-X", "compression.type=lz4", stdin=lines)
    form = r"{key}:{value}\n"
    assert kstore("consume", "lines", "--exit", "--format", form) == lines
    assert kstore("consume", "lines", "-e", "-o", "-2", "-f", form) == b"".join(
        lines.splitlines(keepends=True)[-2:]
    )
    assert kstore("consume", "lines", "-o", "1990", "-c", "1") == b"value 1990\n"


def test_json_carries_everything_from_topic_to_topic(kstore: Shell) -> None:
    record = {
        "key": "k", "value_base64": "/w==", "timestamp": 1234, "headers": [["h", "1"], ["n", None]],
    }  # fmt: skip
    kstore("produce", "json-1", "--json", stdin=json.dumps(record).encode() + b"\n{}\n")
    written = kstore("consume", "json-1", "--json", "--exit")
    kstore("produce", "json-2", "--json", stdin=written)
    again = [json.loads(line) for line in kstore("consume", "json-2", "--json", "-e").splitlines()]
    assert again[0] == record | {"topic": "json-2", "partition": 0, "offset": 0}
    assert (again[1]["key"], again[1]["value"]) == (None, None)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_come_out_as_they_went_in(kstore: Shell, codec: str) -> None:
    lines = b"the same line\n" * 500
    kstore("produce", f"codec-{codec}", "-z", codec, stdin=lines)
    assert kstore("consume", f"codec-{codec}", "-e") == lines


def test_a_bad_line_is_named_and_those_before_it_are_sent(kstore: Shell) -> None:
    errors = kstore("produce", "bad", "-K", ":", stdin=b"a:1\nb:2\nc\n", code=1)
    assert b"stdin line 3: there is no key separator ':'" in errors
    assert kstore("consume", "bad", "-e") == b"1\n2\n"


def test_a_line_that_is_too_large_is_named_and_those_before_it_are_sent(kstore: Shell) -> None:
    errors = kstore("produce", "large", stdin=b"a\nb\n" + b"x" * 2_000_000 + b"\nc\n", code=1)
    assert b"stdin line 3: MESSAGE_TOO_LARGE" in errors
    assert b"the 2 lines before it were sent" in errors
    assert kstore("consume", "large", "-e") == b"a\nb\n"


@pytest.mark.parametrize("group", [(), ("--group", "g")])
def test_verify_order_reports_a_missing_topic_and_does_not_create_it(
    kstore: Shell, group: tuple[str, ...]
) -> None:
    errors = kstore("verify-order", "mispelled", *group, code=2)
    assert b"there is no topic 'mispelled'" in errors
    assert "mispelled" not in kstore.text("topic", "list").split()


def test_a_group_that_does_not_exist_is_not_verified(kstore: Shell) -> None:
    errors = kstore("group", "verify", "mispelled", code=1)
    assert b"there is no group 'mispelled': `kstore group list` shows the groups" in errors


def test_a_group_that_has_not_committed_yet_passes(kstore: Shell, broker: KstoreBroker) -> None:
    kstore("topic", "create", "uncommitted")
    settings = {"group.id": "new", "enable.auto.commit": False}
    with Consumer({"bootstrap.servers": broker.bootstrap} | settings) as consumer:
        consumer.subscribe(["uncommitted"])
        while not consumer.assignment():
            consumer.poll(100)
        done = run_here("group", "verify", "new", environment=kstore.environment)
    assert (done.code, done.errors) == (0, b"kstore: group 'new' has no committed offsets yet\n")


def test_offsets_that_do_not_exist_are_not_said_to_be_deleted(kstore: Shell) -> None:
    errors = kstore("group", "delete-offsets", "mispelled", "--topic", "t", code=1)
    assert b"group 'mispelled' has no committed offsets in 't'" in errors


def test_a_topic_without_offsets_is_named_beside_one_whose_offsets_are_deleted(
    kstore: Shell,
) -> None:
    for topic in ("with", "without"):
        kstore("topic", "create", topic)
    kstore("produce", "with", stdin=b"1\n")
    kstore("consume", "with", "--group", "some", "-e")
    both = ("--topic", "with", "--topic", "without")
    errors = kstore("group", "delete-offsets", "some", *both, code=1)
    assert b"group 'some' has no committed offsets in 'without'" in errors
    errors = kstore("group", "delete-offsets", "some", *both, code=1)
    assert b"group 'some' has no committed offsets in 'with' or 'without'" in errors


def test_states_and_types_of_groups_are_checked(kstore: Shell) -> None:
    assert kstore("group", "list", "--state", "reconciling", "--type", "Consumer") == b""
    errors = kstore("group", "list", "--state", "Emty", code=2)
    assert b"--state is PreparingRebalance or" in errors
    assert b"not 'Emty'" in b" ".join(errors.split())
    assert b"--type is classic or" in kstore("group", "list", "--type", "shared", code=2)


def test_a_refused_quota_names_its_entity(kstore: Shell) -> None:
    errors = kstore("quota", "set", "--user", "ann", "no_such_quota=1", code=1)
    assert b"quotas of user 'ann': This entity has no quota 'no_such_quota'" in errors


def test_ctrl_c_while_modules_are_imported_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kstore.cli.app.run", interrupted)
    assert main(["topic", "list"]) == 130


def test_records_leave_while_stdin_stays_open(kstore: Shell) -> None:
    topic = f"stream-{uuid4().hex}"
    kstore("topic", "create", topic)
    reader = kstore.popen("consume", topic)
    writer = kstore.popen("produce", topic)
    try:
        assert writer.stdin is not None
        assert reader.stdout is not None
        writer.stdin.write(b"first\n")
        writer.stdin.flush()
        assert reader.stdout.readline() == b"first\n"
    finally:
        writer.communicate(timeout=30)
        reader.send_signal(signal.SIGINT)
        _, errors = reader.communicate(timeout=30)
    assert (writer.returncode, reader.returncode, errors) == (0, 130, b"")


def test_a_reader_that_goes_away_ends_consume_quietly(kstore: Shell) -> None:
    kstore("produce", "pipe", stdin=b"x" * 100 + b"\n" + b"y\n" * 100_000)
    process = kstore.popen("consume", "pipe")
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "--offset", "x"),
        ("consume", "t", "--format", "{nope}"),
        ("produce", "t", "--acks", "5"),
        ("produce", "t", "--header", "x"),
        ("produce", "t", "-X", "linger.sm=1"),
        ("consume", "t", "-X", "linger.ms=1"),
        ("consume", "t", "--profile", "nobody"),
        ("topic", "create", "t", "--config", "x"),
        ("topic", "creat", "t"),
        ("topic", "list", "-b", "localhost:nine"),
        ("completion", "tcsh"),
        ("log", "dump"),
    ],
)
def test_wrong_usage_is_exit_code_2(kstore: Shell, arguments: tuple[str, ...]) -> None:
    kstore(*arguments, code=2)


def test_no_broker_is_one_sentence(kstore: Shell) -> None:
    *waits, error = kstore("topic", "list", "-b", "localhost:1", code=1).splitlines()
    assert error.startswith(b"kstore: ")
    assert b"localhost:1" in error
    assert all(line.startswith(b"kstore: waiting for localhost:1, ") for line in waits)


def test_segment_files_are_dumped_and_verified_offline(
    kstore: Shell, broker: KstoreBroker, tmp_path: Path
) -> None:
    kstore("produce", "files", "-K", ":", stdin=b"k:v\xff\nk2:v2\n")
    folder = broker.log_dir / "files-0"
    (segment,) = folder.glob("*.log")
    dumped = kstore("log", "dump", str(folder), "--records")
    assert rb"k: v\\xff" in dumped
    rows = [json.loads(line) for line in kstore("log", "dump", str(segment), "--json").splitlines()]
    assert [(row["type"], row.get("count")) for row in rows] == [("segment", None), ("batch", 2)]
    assert b"2 records in 1 batches" in kstore("log", "verify", str(folder))
    damaged = tmp_path / segment.name
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    damaged.write_bytes(content)
    assert b"damaged" in kstore("log", "verify", str(damaged), code=1)
    assert b"damage" in kstore("log", "dump", str(damaged), code=1)
    assert b"No such file" in kstore("log", "verify", str(tmp_path / "none"), code=1)
    assert b"--dry-run needs --repair" in kstore("log", "verify", str(folder), "--dry-run", code=1)
    assert b"in use by" in kstore("log", "verify", str(folder), "--repair", code=1)
    assert b"0 repairs would be made" in kstore(
        "log", "verify", str(folder), "--repair", "--dry-run"
    )
    copied = tmp_path / "copied" / folder.name / segment.name
    copied.parent.mkdir(parents=True)
    content = bytearray(segment.read_bytes())
    content[16] ^= 1
    copied.write_bytes(content)
    copied.with_name(f"{2:020}.log").touch()  # the damaged batch is not a torn tail
    said = kstore("log", "verify", str(copied.parent), "--repair", "--json")
    assert (json.loads(said)["action"], json.loads(said)["detail"]) == (
        "restore", "magic 3 becomes 2",
    )  # fmt: skip
    assert copied.read_bytes() == segment.read_bytes()
    (tmp_path / "empty").mkdir()
    assert b"no segment files" in kstore("log", "dump", str(tmp_path / "empty"), code=1)


def test_the_load_job_loads_twice_and_compares_both_times(kstore: Shell, tmp_path: Path) -> None:
    file = tmp_path / "some.log"
    file.write_bytes(b"a\n\xff\n\n" + b"b" * 5000 + b"\r\n" + b"c\n" * 3000)
    for round_number in range(2):
        out = kstore("pipeline", "load", "--file", str(file), "--json")
        result = json.loads(out)
        assert (result["records"], result["first_offset"]) == (3004, 3004 * round_number)


def test_completion_is_a_script(kstore: Shell) -> None:
    assert b"_KSTORE_COMPLETE" in kstore("completion", "bash")
    assert kstore("--version").startswith(b"kstore ")
