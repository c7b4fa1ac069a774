"""The clients' settings compared with those of Kafka's own clients: every setting of Kafka's
exists, has no effect for a given reason, or is refused with one. Types and defaults are Kafka's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.config.client.configs import CLIENT_CONFIGS, NO_EFFECT, UNSUPPORTED
from tests.beside.programs import output_of
from tests.conformance.kafka_broker import LIGHT
from tests.conformance.kafka_jars import classpath, java_program

SOURCE = Path(__file__).parents[1] / "java" / "ClientConfigs.java"
# Defaults that differ on purpose; client_configs.py has the reasons.
OTHER_DEFAULTS = {
    "batch.size", "bootstrap.servers", "group.protocol", "partition.assignment.strategy",
    "receive.buffer.bytes", "send.buffer.bytes", "share.acquire.mode",
}  # fmt: skip
# kafka-python's, for what Java's consumer does with poll alone; and librdkafka's.
OTHERS = {"consumer.timeout.ms", "sasl.password", "sasl.username"}


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_jars")
def test_every_setting_of_kafkas_clients_is_known() -> None:
    written = output_of([java_program(), *LIGHT, "-cp", classpath(), SOURCE])
    theirs = [tuple(line.split("\t")) for line in written.splitlines()]
    assert len(theirs) > 300
    problems = []
    for kind, name, type_name, default in theirs:
        # Java has one table for consumers and share consumers.
        row = CLIENT_CONFIGS["share" if name.startswith("share.") else kind].get(name)  # type: ignore[index]
        if row is None:
            if name not in NO_EFFECT and not any(
                name.startswith(begin) for begin, _ in UNSUPPORTED
            ):
                problems.append(f"{kind} {name} is not known")
            continue
        ours = "null" if row.default is None else row.format(row.default)
        if row.type.name != type_name:
            problems.append(f"{kind} {name} is {type_name}")
        if ours != default and name not in OTHER_DEFAULTS:
            problems.append(f"{kind} {name} is by default {default}, not {ours}")
    for kind, rows in CLIENT_CONFIGS.items():
        names = {row[1] for row in theirs if row[0] == ("consumer" if kind == "share" else kind)}
        invented = [n for n in rows if n not in names | OTHERS and not n.startswith("kstore.")]
        problems += [f"{kind} {name} is not Kafka's" for name in invented]
    assert not problems
