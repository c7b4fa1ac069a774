"""Clients that are not closed: sent records arrive or are reported, and consumers leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from kstore.clients import AdminClient, Consumer
from kstore.types import TopicPartition
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = pytest.mark.slow
LIMIT_S = 120
COUNT = 50
LAZY = "Producer(servers, linger_ms=60000, delivery_timeout_ms=120000)"
SEND = f"""
producer = {LAZY}
for n in range({COUNT}):
    producer.send(topic, b"%d" % n)
"""


def start(broker: KstoreBroker, topic: str, script: str, *flags: str) -> subprocess.Popen[str]:
    begin = (
        "import asyncio, gc, os, signal, sys, threading, time\n"
        "from kstore.clients import AIOConsumer, AIOProducer, Consumer, Producer\n"
        f"servers, topic = {broker.bootstrap!r}, {topic!r}\n"
    )
    return subprocess.Popen(
        [sys.executable, *flags, "-c", begin + textwrap.dedent(script)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(broker: KstoreBroker, topic: str, script: str, *flags: str) -> tuple[int, str]:
    """Its exit code and stderr; it ends without help."""
    process = start(broker, topic, script, *flags)
    _, told = process.communicate(timeout=LIMIT_S)
    return process.returncode, told


def written(broker: KstoreBroker, topic: str) -> int:
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap) as consumer:
        return consumer.end_offsets([tp])[tp]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("raise ValueError('x')", 1),
        ("sys.exit(3)", 3),
        ("keep = [producer]; keep.append(keep)", 0),
        ("del producer; gc.collect()", 0),
        ("threading.Thread(target=lambda: producer.send(topic, b'x') and None).start()", 0),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); os.kill(os.getpid(), 15)", 5),
    ],
)
def test_records_of_an_unclosed_producer_are_sent_at_exit(
    broker: KstoreBroker, topic: str, end: str, code: int
) -> None:
    found, told = run(broker, topic, f"{SEND}\n{end}\n", "-X", "dev")
    assert found == code
    assert "lost" not in told
    assert "ResourceWarning" not in told
    assert written(broker, topic) == COUNT + ("Thread" in end)


WITH = """
with Producer(servers, **settings) as producer:
    for n in range(COUNT):
        producer.send(topic, b"x")
    BEFORE
    raise ValueError("the user's own")
"""
ASYNC_WITH = """
async def main():
    async with AIOProducer(servers, **settings) as producer:
        for n in range(COUNT):
            await producer.send(topic, b"x")
        BEFORE
        raise ValueError("the user's own")
asyncio.run(main())
"""
TOLD = "ValueError: the user's own"


def left_by_an_error(script: str, before: str = "pass", **settings: object) -> str:
    """The script of a with block that an error leaves."""
    script = script.replace("BEFORE", before).replace("COUNT", str(COUNT))
    return f"settings = {settings!r}\n{script}"


@pytest.mark.parametrize("script", [WITH, ASYNC_WITH])
def test_an_error_that_leaves_a_with_block_loses_no_records(
    broker: KstoreBroker, topic: str, script: str
) -> None:
    lazy = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    code, told = run(broker, topic, left_by_an_error(script, **lazy), "-X", "dev")
    assert code == 1
    assert TOLD in told
    assert "Warning" not in told
    assert written(broker, topic) == COUNT


@pytest.mark.parametrize("script", [WITH, ASYNC_WITH])
def test_what_a_left_with_block_can_not_send_is_counted_and_told(
    broker: KstoreBroker, topic: str, script: str
) -> None:
    soon = {"linger_ms": 500, "request_timeout_ms": 500, "delivery_timeout_ms": 1000}
    before = "os.kill(int(sys.stdin.readline()), signal.SIGSTOP)"
    assert broker.pid is not None
    process = start(broker, topic, left_by_an_error(script, before, **soon), "-X", "dev")
    try:
        _, told = process.communicate(f"{broker.pid}\n", timeout=LIMIT_S)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert f"a producer whose with block raised ValueError has lost {COUNT} records" in told
    assert "ResourceWarning" in told
    assert TOLD in told


def test_an_error_that_leaves_a_with_block_aborts_the_transaction(
    broker: KstoreBroker, topic: str
) -> None:
    begin = "producer.init_transactions(); producer.begin_transaction()\n    for n in range"
    script = left_by_an_error(WITH.replace("for n in range", begin), transactional_id=topic)
    _, told = run(broker, topic, script, "-X", "dev")
    assert TOLD in told
    assert "lost" not in told
    tp = TopicPartition(topic, 0)
    with AdminClient(broker.bootstrap) as admin:
        assert admin.describe_transactions([topic])[topic].state == "CompleteAbort"
    with Consumer(broker.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        assert consumer.poll(1000) == []


def test_a_collected_producer_sends_while_the_process_goes_on(
    broker: KstoreBroker, topic: str
) -> None:
    script = SEND + "del producer; gc.collect(); print('collected', flush=True); sys.stdin.read()"
    process = start(broker, topic, script)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "collected\n"
        with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert consumer.poll(timeout_ms=LIMIT_S * 1000)
    finally:
        process.communicate("", timeout=LIMIT_S)


def test_a_signal_that_python_does_not_handle_ends_the_process_at_once(
    broker: KstoreBroker, topic: str
) -> None:
    code, _ = run(broker, topic, SEND + "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)")
    assert code == -signal.SIGTERM
    assert written(broker, topic) == 0


def test_what_can_not_be_sent_is_counted_and_told(broker: KstoreBroker, topic: str) -> None:
    script = f"""
    producer = Producer(servers, linger_ms=500, request_timeout_ms=500, delivery_timeout_ms=1000)
    for n in range({COUNT}):
        producer.send(topic, b"x")
    os.kill(int(sys.stdin.readline()), signal.SIGSTOP)
    """
    assert broker.pid is not None
    process = start(broker, topic, script, "-X", "dev")
    try:
        _, told = process.communicate(f"{broker.pid}\n", timeout=LIMIT_S)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert f"a producer that was not closed has lost {COUNT} records" in told
    assert "ResourceWarning" in told
    assert process.returncode == 0


def test_an_exit_that_waits_says_what_for(broker: KstoreBroker, topic: str) -> None:
    script = """
    producer = Producer(servers, linger_ms=500, request_timeout_ms=500, delivery_timeout_ms=6000)
    producer.send(topic, b"x")
    os.kill(int(sys.stdin.readline()), signal.SIGSTOP)
    """
    assert broker.pid is not None
    process = start(broker, topic, script)
    try:
        _, told = process.communicate(f"{broker.pid}\n", timeout=LIMIT_S)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert "exit waits for records of producers that were not closed, for up to 7 s" in told
    assert "has lost 1 records" in told


def test_a_forked_child_sends_nothing_of_its_parent(broker: KstoreBroker, topic: str) -> None:
    script = SEND + "if os.fork() == 0:\n    sys.exit(0)\nos.wait()\nos._exit(0)\n"
    assert run(broker, topic, script)[0] == 0
    assert written(broker, topic) == 0


@pytest.mark.parametrize(
    "script",
    [
        f"""
        async def main():
            producer = AIO{LAZY}
            for n in range({COUNT}):
                await producer.send(topic, b"x")
        asyncio.run(main())
        """,
        f"""
        async def main():
            global producer
            producer = AIO{LAZY}
            for n in range({COUNT}):
                await producer.send(topic, b"x")
        asyncio.run(main())
        """,
        f"""
        async def main():
            producer = AIO{LAZY}
            for n in range({COUNT}):
                await producer.send(topic, b"x")
            raise ValueError
        asyncio.run(main())
        """,
        f"""
        async def main():
            producer = AIO{LAZY}
            for n in range({COUNT}):
                await producer.send(topic, b"x")
        asyncio.new_event_loop().run_until_complete(main())
        """,
    ],
)
def test_records_of_an_unclosed_aio_producer_are_sent_when_its_loop_ends(
    broker: KstoreBroker, topic: str, script: str
) -> None:
    _, told = run(broker, topic, script, "-X", "dev")
    assert "has lost" not in told
    assert written(broker, topic) == COUNT, told


def test_records_behind_a_closed_loop_are_told(broker: KstoreBroker, topic: str) -> None:
    script = f"""
    async def main():
        global producer
        producer = AIO{LAZY}
        for n in range({COUNT}):
            await producer.send(topic, b"x")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    """
    assert f"has lost {COUNT} records" in run(broker, topic, script)[1]
    assert written(broker, topic) == 0


@pytest.mark.parametrize("end", ["", "raise ValueError", "del consumer; gc.collect()"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_unclosed_consumer_leaves_its_group_and_commits_nothing(
    broker: KstoreBroker, topic: str, end: str, protocol: str
) -> None:
    assert run(broker, topic, SEND)[0] == 0
    script = f"""
    consumer = Consumer(servers, group_id=topic, group_protocol="{protocol}",
                        auto_offset_reset="earliest")
    consumer.subscribe([topic])
    while not consumer.poll(1000): pass
    {end}
    """
    run(broker, topic, script)
    with AdminClient(broker.bootstrap) as admin:
        assert admin.describe_groups([topic])[topic].members == ()
        assert admin.list_group_offsets(topic) == {}


def test_an_unclosed_aio_consumer_leaves_its_group(broker: KstoreBroker, topic: str) -> None:
    assert run(broker, topic, SEND)[0] == 0
    script = """
    async def main():
        consumer = AIOConsumer(servers, group_id=topic, auto_offset_reset="earliest")
        consumer.subscribe([topic])
        while not await consumer.poll(1000): pass
    asyncio.run(main())
    """
    run(broker, topic, script)
    with AdminClient(broker.bootstrap) as admin:
        assert admin.describe_groups([topic])[topic].members == ()
