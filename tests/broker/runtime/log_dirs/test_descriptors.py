"""A broker that may open few files reports the limit, refuses what it cannot do, and goes on."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kstore.broker.runtime.log_dirs.descriptors import Descriptors, raise_descriptor_limit
from kstore.errors import ErrorCode
from kstore.protocol.metadata.topics import CreateTopicsResponse
from kstore.protocol.registry import decode_response, encode_request
from tests.conformance import wire
from tests.conformance.kafka_broker import free_port
from tests.plain_messages import Ask

LIMIT = 100


@pytest.fixture
def limited(tmp_path: Path):
    """The port and process of a broker that may open LIMIT files."""
    port = free_port()
    limit = f'ulimit -n {LIMIT}; exec "$0" "$@"'
    serve = [sys.executable, "-m", "kstore", "serve", f"--override=log.dirs={tmp_path}/data"]
    listener = f"--override=listeners=PLAINTEXT://127.0.0.1:{port}"
    command = ["sh", "-c", limit, *serve, listener]
    with open(tmp_path / "err", "wb") as err:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err)
    wire.wait_for_answer("127.0.0.1", port, time.monotonic() + 20)
    yield port, process
    process.terminate()
    process.wait(20)


def create(sock: socket.socket, count: int) -> list[int]:
    topics = [{"name": f"t{n}", "num_partitions": 1, "replication_factor": 1} for n in range(count)]
    request = Ask.CreateTopics(topics=topics, timeout_ms=10_000)
    answer = wire.exchange(sock, encode_request(request, 7, 1, "test"))
    return [row.error_code for row in decode_response(answer, CreateTopicsResponse, 7)[1].topics]


def answered(port: int) -> socket.socket | None:
    """A connection that the broker serves, or None."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    try:
        wire.exchange(sock, wire.API_VERSIONS_FRAME)
    except OSError:
        sock.close()
        return None
    return sock


@pytest.mark.slow
def test_without_descriptors_topics_and_connections_are_refused_and_the_broker_lives(
    limited, tmp_path
):
    port, process = limited
    with socket.create_connection(("127.0.0.1", port), timeout=20) as first:
        codes = create(first, LIMIT)
        assert set(codes) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        made = codes.count(ErrorCode.NONE)
        folders = [name for name in os.listdir(tmp_path / "data") if name.startswith("t")]
        assert len(folders) == made  # nothing is left half created
        sockets = [answered(port) for _ in range(LIMIT)]
        assert None in sockets
        assert any(sockets)
        wire.exchange(first, wire.API_VERSIONS_FRAME)
        for sock in filter(None, sockets):
            sock.close()
    wire.wait_for_answer("127.0.0.1", port, time.monotonic() + 20)
    assert "raise the limit (ulimit -n)" in (tmp_path / "err").read_text()
    process.terminate()
    assert process.wait(20) == 0


def test_what_is_left_is_counted():
    descriptors = Descriptors()
    before = descriptors.left
    held = [os.dup(0) for _ in range(5)]
    assert descriptors.left <= before - 5
    for fd in held:
        os.close(fd)
    assert descriptors.left == before
    descriptors.close()


def test_the_limit_is_raised_as_far_as_allowed():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 300:
        pytest.fail("the tests need more than 300 files")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_second_close_leaves_what_others_have_opened() -> None:
    descriptors = Descriptors()
    descriptors.close()
    # They get the same descriptor numbers.
    mine = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]
    descriptors.close()
    for fd in mine:
        os.close(fd)


def test_the_table_of_descriptors_grows_before_they_are_opened() -> None:
    asked = 4096
    script = (
        "import os\n"
        "from kstore.broker.runtime.log_dirs.descriptors import grow_descriptor_table\n"
        "size = lambda: int(next(l for l in open('/proc/self/status') if l.startswith('FDSize'))"
        ".split()[1])\n"
        "open_before = len(os.listdir('/proc/self/fd'))\n"
        f"before = size(); grow_descriptor_table({asked}); after = size()\n"
        "assert len(os.listdir('/proc/self/fd')) == open_before\n"
        "grow_descriptor_table(1 << 40); grow_descriptor_table(0)\n"
        "print(before, after)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    before, after = map(int, run.stdout.split())
    assert before < asked <= after
