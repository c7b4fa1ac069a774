"""Kafka settings that are accepted and do nothing here, each with the reason, so that a Kafka file
starts as it is.

A name stands here only if ignoring it can't make a promise false. A setting that would matter
(authentication, an authorizer) and is not supported is in UNSUPPORTED, and refused.
"""

from __future__ import annotations

__all__ = ["IGNORED", "UNSUPPORTED"]

_ONE_LOOP = "the broker serves all connections from one event loop"
_NO_KRAFT = "there is no KRaft quorum: metadata is in the coordination store"
_SINGLE = "it is about replication between brokers, which comes with the cluster"
_STORE = "indexes and checkpoints are in LMDB and need no tuning"
_REPORTERS = "JMX and reporter plug-ins are the JVM's"

# name -> why it can't matter
IGNORED: dict[str, str] = {
    "num.network.threads": _ONE_LOOP,
    "num.io.threads": _ONE_LOOP,
    "background.threads": _ONE_LOOP,
    "queued.max.requests": _ONE_LOOP,
    "socket.send.buffer.bytes": "the system sizes the buffers of sockets",
    "socket.receive.buffer.bytes": "the system sizes the buffers of sockets",
    "num.recovery.threads.per.data.dir": "recovery reads only what follows the last checkpoint",
    "process.roles": _NO_KRAFT,
    "controller.quorum.voters": _NO_KRAFT,
    "controller.quorum.bootstrap.servers": _NO_KRAFT,
    "controller.listener.names": _NO_KRAFT,
    "metadata.log.dir": _NO_KRAFT,
    "inter.broker.listener.name": _SINGLE,
    "security.inter.broker.protocol": _SINGLE,
    "num.replica.fetchers": _SINGLE,
    "replica.lag.time.max.ms": _SINGLE,
    "replica.fetch.max.bytes": _SINGLE,
    "replica.fetch.min.bytes": _SINGLE,
    "replica.fetch.wait.max.ms": _SINGLE,
    "replica.socket.timeout.ms": _SINGLE,
    "replica.socket.receive.buffer.bytes": _SINGLE,
    "auto.leader.rebalance.enable": _SINGLE,
    "leader.imbalance.check.interval.seconds": _SINGLE,
    "controlled.shutdown.enable": _SINGLE,
    "broker.rack": _SINGLE,
    "share.coordinator.state.topic.replication.factor": "share groups are not supported",
    "share.coordinator.state.topic.min.isr": "share groups are not supported",
    "log.flush.scheduler.interval.ms": _STORE,
    "log.flush.offset.checkpoint.interval.ms": _STORE,
    "log.flush.start.offset.checkpoint.interval.ms": _STORE,
    "log.cleaner.threads": "the cleaner works in slices beside the event loop",
    "log.cleaner.dedupe.buffer.size": "the cleaner sizes its key table by the log",
    "log.cleaner.io.buffer.size": "the cleaner sizes its buffers by the batches",
    "offsets.topic.compression.codec": "offset records are stored uncompressed",
    "offsets.load.buffer.size": "offsets are loaded in pieces of a fixed size",
    "offsets.commit.timeout.ms": "a commit is answered once it is written",
    "metric.reporters": _REPORTERS,
    "auto.include.jmx.reporter": _REPORTERS,
    "metrics.num.samples": _REPORTERS,
    "metrics.recording.level": _REPORTERS,
    "metrics.sample.window.ms": _REPORTERS,
}

# name -> what to do instead; these are refused because a user who sets them relies on them
UNSUPPORTED: dict[str, str] = {
    "authorizer.class.name": (
        "access control is not supported yet: remove it and restrict the listener to localhost"
    ),
    "sasl.enabled.mechanisms": (
        "authentication is not supported yet: remove it and restrict the listener to localhost"
    ),
    "ssl.keystore.location": (
        "TLS is not supported yet: remove it and put a TLS proxy in front of the listener"
    ),
    "zookeeper.connect": "ZooKeeper is not supported yet: remove it to run a single broker",
}
