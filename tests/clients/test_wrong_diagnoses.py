"""Errors for a wrong port, name or folder: they name the real problem, and say what to do."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.clients import (
    AdminClient,
    AIOProducer,
    Consumer,
    InvalidConfigError,
    NetworkError,
    NewTopic,
    Producer,
    ProducerRecord,
    TopicPartition,
)
from kstore.config.client.configs import CLIENT_CONFIGS, NO_EFFECT, client_settings
from kstore.config.client.other_names import OTHER_NAMES
from kstore.config.definition import ConfigError
from kstore.other_protocols import other_protocol
from tests.conformance.kstore_broker import KstoreBroker


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"GET / HTTP/1.1", "HTTP"),
        (b"HTTP/1.1 400", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"\x15\x03\x03\x00\x02", "TLS"),
        (b"\x00\x00\x00\x23", None),
        (b"\x16\x02\x01\x02", None),
        (b"", None),
    ],
)
def test_other_protocols_show_in_their_first_bytes(first: bytes, protocol: str | None) -> None:
    assert other_protocol(first) == protocol


def test_an_http_client_on_a_plain_port_is_told_and_named(broker: KstoreBroker) -> None:
    host, port = broker.bootstrap.split(":")
    with socket.create_connection((host, int(port)), 60) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while piece := client.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"This is a Kafka listener, which does not speak HTTP" in answer
    assert "it speaks HTTP, and this listener Kafka's protocol" in broker.error_output()


def test_a_tls_client_on_a_plain_port_is_named_at_both_ends(broker: KstoreBroker) -> None:
    settings = {"security_protocol": "SSL", "default_api_timeout_ms": 500}
    with (
        pytest.raises(NetworkError, match=r"does not speak TLS .* security.protocol of PLAINTEXT"),
        AdminClient(broker.bootstrap, **settings) as admin,
    ):
        admin.list_topics()
    assert "it speaks TLS, and this listener does not" in broker.error_output()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers with HTTP, .* port of a web server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "answers with TLS, .* security.protocol of SSL"),
    ],
)
def test_a_client_names_what_answers_in_place_of_a_broker(answer: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with AdminClient(address, default_api_timeout_ms=200) as admin:

            async def serve() -> None:
                async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    await reader.read(4)
                    writer.write(answer)
                    await writer.drain()

                running = await asyncio.start_server(one, sock=server)
                with pytest.raises(NetworkError, match=told):
                    await asyncio.to_thread(admin.list_topics)
                running.close()

            asyncio.run(serve())


def test_the_nearest_name_of_a_config_is_told(broker: KstoreBroker) -> None:
    with AdminClient(broker.bootstrap) as admin:
        with pytest.raises(InvalidConfigError, match=r"'retention.mss'; did you mean retention.ms"):
            admin.create_topics([NewTopic("near", configs={"retention.mss": "1"})])
        admin.create_topics({"near": 1})
        with pytest.raises(InvalidConfigError, match=r"did you mean segment.bytes\?"):
            admin.alter_configs("near", {"segment.byte": "1"})
        with pytest.raises(InvalidConfigError, match=r"did you mean consumer.session.timeout.ms"):
            admin.alter_configs("g", {"consumer.session.timeout": "1"}, resource="group")
        with pytest.raises(InvalidConfigError, match=r"no setting 'qqqqqqqqqq'\.$"):
            admin.alter_configs("near", {"qqqqqqqqqq": "1"})


def test_values_of_another_kind_are_refused_in_a_sentence(broker: KstoreBroker) -> None:
    number: dict[str, Any] = {"retention.ms": 5000}
    sentence = r"^retention.ms is the int 5000: pass text, or None for the default$"
    with AdminClient(broker.bootstrap) as admin:
        with pytest.raises(TypeError, match=sentence):
            admin.create_topics([NewTopic("kinds", configs=number)])
        with pytest.raises(TypeError, match=sentence):
            admin.alter_configs("kinds", number)
    text: Any = "57"  # not offset "5" with the metadata "7"
    with (
        Consumer(bootstrap_servers=broker.bootstrap, group_id="kinds") as consumer,
        pytest.raises(TypeError, match=r"^offsets contains the str '57': pass a dict of"),
    ):
        consumer.commit({TopicPartition("kinds", 0): text})


def test_a_timeout_of_flush_that_is_no_number_is_refused(broker: KstoreBroker) -> None:
    text: Any = "5"
    sentence = r"^timeout is the str '5': pass a number$"

    async def flush() -> None:
        async with AIOProducer(broker.bootstrap) as producer:
            with pytest.raises(TypeError, match=sentence):
                await producer.flush(text)
            await producer.flush(5)

    with Producer(broker.bootstrap) as producer:
        with pytest.raises(TypeError, match=sentence):
            producer.flush(text)
        producer.flush(5.0)
    asyncio.run(flush())


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("producer", "queue.buffering.max.ms", "did you mean linger.ms?"),
        ("producer", "queue_buffering_max_ms", "did you mean linger_ms?"),
        ("producer", "message.max.bytes", "did you mean max.request.size?"),
        ("consumer", "fetch.wait.max.ms", "did you mean fetch.max.wait.ms?"),
        ("consumer", "ssl.ca.location", "did you mean ssl.truststore.location?"),
        ("consumer", "message.max.bytes", "as max.request.size it is one of producer clients"),
        ("admin", "metadata.broker.list", "did you mean bootstrap.servers?"),
    ],
)
def test_names_of_other_clients_lead_to_kafka_s(kind: str, name: str, told: str) -> None:
    keywords, config = ({name: 1}, {}) if "_" in name else ({}, {name: 1})
    with pytest.raises(ConfigError) as raised:
        client_settings(kind, config, keywords)  # type: ignore[arg-type]
    assert told in str(raised.value)


def test_names_of_other_clients_lead_to_names_that_there_are() -> None:
    known = {name for rows in CLIENT_CONFIGS.values() for name in rows} | set(NO_EFFECT)
    assert set(OTHER_NAMES.values()) - known == set()
    assert set(OTHER_NAMES) & known == set()


def test_headers_may_be_a_mapping_everywhere(broker: KstoreBroker, tmp_path: Path) -> None:
    headers = {"a": b"1", "b": None}

    async def send() -> None:
        async with AIOProducer(broker.bootstrap) as producer:
            await (await producer.send("headers", b"x", headers=headers))

    with Producer(broker.bootstrap) as producer:
        producer.send("headers", b"x", headers=headers)
        producer.send(ProducerRecord("headers", b"x", headers=headers))
        producer.flush()
    asyncio.run(send())
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign([TopicPartition("headers", 0)])
        consumer.seek_to_beginning()
        found = []
        while len(found) < 3:
            found += consumer.poll(1000)
    with kstore.open_log(tmp_path) as log:
        log.append(b"x", headers=headers)
        log.append_many([(None, b"x", None, headers)])
        found += list(log.records())
    assert [list(record.headers) for record in found] == [[("a", b"1"), ("b", None)]] * 5


def test_a_missing_pyarrow_names_the_extra(broker: KstoreBroker) -> None:
    script = f"""
import sys
sys.modules["pyarrow"] = None
import kstore
from kstore.clients import Consumer, Producer
for call in (
    lambda: Consumer({broker.bootstrap!r}).poll_arrow(),
    lambda: Producer({broker.bootstrap!r}).send_arrow("t", None),
    lambda: kstore.open_log("log").read_arrow(0),
):
    try:
        call()
    except ImportError as error:
        assert "pip install 'kstore[arrow]'" in str(error), error
        print("told")
"""
    env = {"PYTHONPATH": str(Path(kstore.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=env,
        cwd=broker.folder,
    )  # fmt: skip
    assert done.stdout.split() == ["told"] * 3, done.stderr


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("place", ["/proc/nothere", "file"])
def test_a_log_dir_that_can_not_be_made_ends_the_start(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "kstore", "serve", f"--override=log.dirs={tmp_path / place}",
         "--override=listeners=PLAINTEXT://127.0.0.1:0"],
        capture_output=True, text=True, check=False, timeout=60,
        cwd=Path(kstore.__file__).parents[1],
    )  # fmt: skip
    assert done.returncode == 1
    assert f"log.dirs: {tmp_path / place} can't hold logs" in done.stderr


def test_a_setting_with_a_wrong_value_is_named_once() -> None:
    with pytest.raises(ConfigError, match=r"^acks is '5'; it must be text, one of all, -1, 0, 1$"):
        client_settings("producer", {"acks": "5"}, {})
    with pytest.raises(ConfigError, match=r"^linger.ms \(linger_ms\) is 'x'; it must be"):
        client_settings("producer", {}, {"linger_ms": "x"})
