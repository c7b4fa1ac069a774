"""librdkafka's names of settings (and some older ones of Java's clients), with Kafka's names.
Errors mention them, but they are not accepted: values may differ in unit and meaning.
"""

from __future__ import annotations

__all__ = ["OTHER_NAMES"]

OTHER_NAMES: dict[str, str] = {
    "auto.commit.enable": "enable.auto.commit",
    "batch.num.messages": "batch.size",
    "broker.list": "bootstrap.servers",
    "compression.codec": "compression.type",
    "compression.level": "compression.zstd.level",
    "consumer.id": "client.id",
    "enable.auto.offset.store": "enable.auto.commit",
    "enable.ssl.certificate.verification": "ssl.endpoint.identification.algorithm",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "group.protocol.type": "group.protocol",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.copy.max.bytes": "max.request.size",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.backpressure.threshold": "linger.ms",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "queued.max.messages.kbytes": "kstore.fetch.ahead.bytes",
    "queued.min.messages": "kstore.fetch.ahead.bytes",
    "receive.message.max.bytes": "fetch.max.bytes",
    "request.required.acks": "acks",
    "request.timeout": "request.timeout.ms",
    "serializer.class": "value.serializer",
    "socket.connection.setup.timeout": "socket.connection.setup.timeout.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "zookeeper.connect": "bootstrap.servers",
}
