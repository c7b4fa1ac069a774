"""Kafka's broker configs that have no effect here, each with the reason, and those that are
refused.

A name is in the first list only if ignoring it does not break a promise, so that a Kafka file works
unchanged; DescribeConfigs shows it with Kafka's type and default. A config that matters and is not
supported is refused unless it has its default. The table is large, and is read only if one of its
names is set or all configs are requested: the broker's start does not import it.
"""

from __future__ import annotations

from typing import Any

from kstore.config.definition import (
    MAX_LONG,
    ConfigDef,
    ConfigType,
    Importance,
    UpdateMode,
    Validator,
    at_least,
    between,
    each_one_of,
    one_of,
)

__all__ = ["DYNAMIC_ONLY", "NO_EFFECT", "REFUSED", "THREAD_COUNTS"]

_BOOLEAN, _SHORT, _INT, _LONG = (
    ConfigType.BOOLEAN,
    ConfigType.SHORT,
    ConfigType.INT,
    ConfigType.LONG,
)
_DOUBLE, _STRING, _LIST = ConfigType.DOUBLE, ConfigType.STRING, ConfigType.LIST
_CLASS, _PASSWORD = ConfigType.CLASS, ConfigType.PASSWORD
_PER_BROKER, _CLUSTER_WIDE = UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE


def _row(
    name: str,
    kind: ConfigType,
    default: Any,
    validator: Validator | None = None,
    update: UpdateMode = UpdateMode.READ_ONLY,
) -> ConfigDef:
    return ConfigDef(name, kind, default, "", Importance.LOW, validator, (), update)


# (why they have no effect, the configs)
_NO_EFFECT: tuple[tuple[str, tuple[ConfigDef, ...]], ...] = (
    (
        "two-phase commit is not served, as in Kafka 4.3",
        (_row("transaction.two.phase.commit.enable", _BOOLEAN, False),),
    ),
    (
        "one event loop serves all connections and requests",
        (
            _row("num.replica.alter.log.dirs.threads", _INT, None),
            _row("background.threads", _INT, 10, at_least(1), _CLUSTER_WIDE),
            _row("group.coordinator.background.threads", _INT, 2, at_least(1)),
            _row("group.coordinator.threads", _INT, 4, at_least(1)),
            _row("num.io.threads", _INT, 8, at_least(1), _CLUSTER_WIDE),
            _row("num.network.threads", _INT, 3, at_least(1), _CLUSTER_WIDE),
            _row("queued.max.requests", _INT, 500, at_least(1)),
            _row("request.timeout.ms", _INT, 30_000),
        ),
    ),
    (
        "a waiting request is answered by the event it waits for, so there is no purgatory to "
        "purge",
        (
            _row("delete.records.purgatory.purge.interval.requests", _INT, 1),
            _row("fetch.purgatory.purge.interval.requests", _INT, 1000),
            _row("producer.purgatory.purge.interval.requests", _INT, 1000),
            _row("share.fetch.purgatory.purge.interval.requests", _INT, 1000),
        ),
    ),
    (
        "coordinators write each change at once, uncompressed, and load in chunks of a fixed size",
        (
            _row("group.coordinator.append.linger.ms", _INT, -1, at_least(-1)),
            _row(
                "group.coordinator.cached.buffer.max.bytes",
                _INT,
                1_048_588,
                at_least(524_288),
                _CLUSTER_WIDE,
            ),
            _row("offsets.load.buffer.size", _INT, 5_242_880, at_least(1)),
            _row("offsets.topic.compression.codec", _INT, 0),
            _row("transaction.state.log.load.buffer.size", _INT, 5_242_880, at_least(1)),
        ),
    ),
    (
        "the producer retries, not the broker",
        (
            _row("add.partitions.to.txn.retry.backoff.max.ms", _INT, 100, at_least(0)),
            _row("add.partitions.to.txn.retry.backoff.ms", _INT, 20, at_least(1)),
        ),
    ),
    (
        "connections between brokers have a fixed limit of 10 seconds",
        (
            _row("socket.connection.setup.timeout.max.ms", _LONG, 30_000),
            _row("socket.connection.setup.timeout.ms", _LONG, 10_000),
        ),
    ),
    (
        "all checkpoints are written together every second, and recovery reads only what follows "
        "them",
        (
            _row("log.flush.offset.checkpoint.interval.ms", _INT, 60_000, at_least(0)),
            _row("log.flush.start.offset.checkpoint.interval.ms", _INT, 60_000, at_least(0)),
            _row("num.recovery.threads.per.data.dir", _INT, 2, at_least(1), _CLUSTER_WIDE),
            _row("replica.high.watermark.checkpoint.interval.ms", _LONG, 5000),
        ),
    ),
    (
        "the cleaner is a single thread that sizes its table and buffers to fit the log",
        (
            _row("log.cleaner.dedupe.buffer.size", _LONG, 134_217_728, update=_CLUSTER_WIDE),
            _row("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9, update=_CLUSTER_WIDE),
            _row("log.cleaner.io.buffer.size", _INT, 524_288, at_least(0), _CLUSTER_WIDE),
            _row("log.cleaner.threads", _INT, 1, at_least(0), _CLUSTER_WIDE),
        ),
    ),
    (
        "JMX and reporter plug-ins exist only in a JVM",
        (
            _row("kafka.metrics.polling.interval.secs", _INT, 10, at_least(1)),
            _row("kafka.metrics.reporters", _LIST, ()),
            _row(
                "metric.reporters",
                _LIST,
                ("org.apache.kafka.common.metrics.JmxReporter",),
                update=_CLUSTER_WIDE,
            ),
            _row("metrics.num.samples", _INT, 2, at_least(1)),
            _row("metrics.recording.level", _STRING, "INFO"),
            _row("metrics.sample.window.ms", _LONG, 30_000, at_least(1)),
        ),
    ),
    (
        "these copies are not throttled",
        (
            _row("alter.log.dirs.replication.quota.window.num", _INT, 11, at_least(1)),
            _row("alter.log.dirs.replication.quota.window.size.seconds", _INT, 1, at_least(1)),
        ),
    ),
    (
        "metadata is kept in the coordination store, not in a KRaft quorum",
        (
            _row("log.dir.failure.timeout.ms", _LONG, 30_000, at_least(1)),
            _row("broker.heartbeat.interval.ms", _INT, 2000),
            _row("broker.session.timeout.ms", _INT, 9000),
            _row("controller.listener.names", _LIST, None),
            _row("controller.quorum.append.linger.ms", _INT, 25, at_least(0)),
            _row("controller.quorum.auto.join.enable", _BOOLEAN, False),
            _row("controller.quorum.bootstrap.servers", _LIST, ()),
            _row("controller.quorum.election.backoff.max.ms", _INT, 1000, at_least(0)),
            _row("controller.quorum.election.timeout.ms", _INT, 1000, at_least(0)),
            _row("controller.quorum.fetch.max.bytes", _INT, 1_048_576, at_least(1)),
            _row("controller.quorum.fetch.snapshot.max.bytes", _INT, 1_048_576, at_least(1)),
            _row("controller.quorum.fetch.timeout.ms", _INT, 2000, at_least(0)),
            _row("controller.quorum.request.timeout.ms", _INT, 2000, at_least(0)),
            _row("controller.quorum.retry.backoff.ms", _INT, 20, at_least(0)),
            _row("controller.quorum.voters", _LIST, ()),
            _row("controller.socket.timeout.ms", _INT, 30_000),
            _row("early.start.listeners", _LIST, None),
            _row("initial.broker.registration.timeout.ms", _INT, 60_000),
            _row("metadata.log.dir", _STRING, None),
            _row("metadata.log.max.record.bytes.between.snapshots", _LONG, 20_971_520, at_least(1)),
            _row("metadata.log.max.snapshot.interval.ms", _LONG, 3_600_000, at_least(0)),
            _row("metadata.log.segment.bytes", _INT, 1_073_741_824, at_least(8_388_608)),
            _row("metadata.log.segment.ms", _LONG, 604_800_000),
            _row("metadata.max.idle.interval.ms", _INT, 500, at_least(0)),
            _row("metadata.max.retention.bytes", _LONG, 104_857_600),
            _row("metadata.max.retention.ms", _LONG, 604_800_000),
            _row("process.roles", _LIST, None, each_one_of("broker", "controller")),
        ),
    ),
    (
        "one connection copies all partitions that another broker leads, and the system sizes "
        "its buffer",
        (
            _row("num.replica.fetchers", _INT, 1, at_least(1), _CLUSTER_WIDE),
            _row("replica.socket.receive.buffer.bytes", _INT, 65_536),
        ),
    ),
    (
        "tiered storage is not supported",
        (
            _row("follower.fetch.last.tiered.offset.enable", _BOOLEAN, False, update=_CLUSTER_WIDE),
            _row("remote.fetch.max.wait.ms", _INT, 500, at_least(1), _CLUSTER_WIDE),
            _row(
                "remote.list.offsets.request.timeout.ms", _LONG, 30_000, at_least(1), _CLUSTER_WIDE
            ),
            _row(
                "remote.log.index.file.cache.total.size.bytes",
                _LONG,
                1_073_741_824,
                at_least(1),
                _CLUSTER_WIDE,
            ),
            _row(
                "remote.log.manager.copier.thread.pool.size", _INT, 10, at_least(1), _CLUSTER_WIDE
            ),
            _row(
                "remote.log.manager.copy.max.bytes.per.second",
                _LONG,
                MAX_LONG,
                at_least(1),
                _CLUSTER_WIDE,
            ),
            _row("remote.log.manager.copy.quota.window.num", _INT, 11, at_least(1)),
            _row("remote.log.manager.copy.quota.window.size.seconds", _INT, 1, at_least(1)),
            _row(
                "remote.log.manager.expiration.thread.pool.size",
                _INT,
                10,
                at_least(1),
                _CLUSTER_WIDE,
            ),
            _row(
                "remote.log.manager.fetch.max.bytes.per.second",
                _LONG,
                MAX_LONG,
                at_least(1),
                _CLUSTER_WIDE,
            ),
            _row("remote.log.manager.fetch.quota.window.num", _INT, 11, at_least(1)),
            _row("remote.log.manager.fetch.quota.window.size.seconds", _INT, 1, at_least(1)),
            _row(
                "remote.log.manager.follower.thread.pool.size", _INT, 2, at_least(1), _CLUSTER_WIDE
            ),
            _row("remote.log.manager.task.interval.ms", _LONG, 30_000, at_least(1)),
            _row("remote.log.manager.thread.pool.size", _INT, 2, at_least(1)),
            _row("remote.log.metadata.custom.metadata.max.bytes", _INT, 128, at_least(0)),
            _row(
                "remote.log.metadata.manager.class.name",
                _STRING,
                "org.apache.kafka.server.log.remote.metadata.storage."
                "TopicBasedRemoteLogMetadataManager",
            ),
            _row("remote.log.metadata.manager.class.path", _STRING, None),
            _row("remote.log.metadata.manager.impl.prefix", _STRING, "rlmm.config."),
            _row("remote.log.metadata.manager.listener.name", _STRING, None),
            _row("remote.log.reader.max.pending.tasks", _INT, 100, at_least(1)),
            _row("remote.log.reader.threads", _INT, 10, at_least(1), _CLUSTER_WIDE),
            _row("remote.log.storage.manager.class.name", _STRING, None),
            _row("remote.log.storage.manager.class.path", _STRING, None),
            _row("remote.log.storage.manager.impl.prefix", _STRING, "rsm.config."),
        ),
    ),
    (
        "share groups have a single assignor",
        (_row("group.share.assignors", _LIST, ("simple",)),),
    ),
    (
        "the share coordinator appends at once, on the broker's event loop, without buffers",
        (
            _row("share.coordinator.append.linger.ms", _INT, -1, at_least(-1)),
            _row(
                "share.coordinator.cached.buffer.max.bytes",
                _INT,
                1_048_588,
                at_least(524_288),
                _CLUSTER_WIDE,
            ),
            _row("share.coordinator.load.buffer.size", _INT, 5_242_880, at_least(1)),
            _row("share.coordinator.state.topic.compression.codec", _INT, 0),
            _row("share.coordinator.threads", _INT, 1, at_least(1)),
        ),
    ),
    (
        "Kerberos is not supported, and tokens are fetched and renewed as in kstore's clients",
        (
            _row("sasl.client.callback.handler.class", _CLASS, None),
            _row("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit", update=_PER_BROKER),
            _row("sasl.kerberos.min.time.before.relogin", _LONG, 60_000, update=_PER_BROKER),
            _row("sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",), update=_PER_BROKER),
            _row("sasl.kerberos.service.name", _STRING, None, update=_PER_BROKER),
            _row("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05, update=_PER_BROKER),
            _row("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, 0.8, update=_PER_BROKER),
            _row("sasl.login.callback.handler.class", _CLASS, None),
            _row("sasl.login.class", _CLASS, None),
            _row("sasl.login.connect.timeout.ms", _INT, None),
            _row("sasl.login.read.timeout.ms", _INT, None),
            _row("sasl.login.refresh.buffer.seconds", _SHORT, 300, update=_PER_BROKER),
            _row("sasl.login.refresh.min.period.seconds", _SHORT, 60, update=_PER_BROKER),
            _row("sasl.login.refresh.window.factor", _DOUBLE, 0.8, update=_PER_BROKER),
            _row("sasl.login.refresh.window.jitter", _DOUBLE, 0.05, update=_PER_BROKER),
            _row("sasl.login.retry.backoff.max.ms", _LONG, 10_000),
            _row("sasl.login.retry.backoff.ms", _LONG, 100),
            _row("sasl.mechanism.controller.protocol", _STRING, "GSSAPI"),
            _row(
                "sasl.oauthbearer.assertion.algorithm",
                _STRING,
                "RS256",
                one_of("ES256", "RS256", any_case=True),
            ),
            _row("sasl.oauthbearer.assertion.claim.aud", _STRING, None),
            _row("sasl.oauthbearer.assertion.claim.exp.seconds", _INT, 300, between(0, 86_400)),
            _row("sasl.oauthbearer.assertion.claim.iss", _STRING, None),
            _row("sasl.oauthbearer.assertion.claim.jti.include", _BOOLEAN, False),
            _row("sasl.oauthbearer.assertion.claim.nbf.seconds", _INT, 60, between(0, 3600)),
            _row("sasl.oauthbearer.assertion.claim.sub", _STRING, None),
            _row("sasl.oauthbearer.assertion.file", _STRING, None),
            _row("sasl.oauthbearer.assertion.private.key.file", _STRING, None),
            _row("sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None),
            _row("sasl.oauthbearer.assertion.template.file", _STRING, None),
            _row(
                "sasl.oauthbearer.jwt.retriever.class",
                _CLASS,
                "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
            ),
            _row(
                "sasl.oauthbearer.jwt.validator.class",
                _CLASS,
                "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
            ),
        ),
    ),
    (
        "the TLS library's own implementations are used",
        (
            _row("security.providers", _STRING, None),
            _row("ssl.keymanager.algorithm", _STRING, "SunX509", update=_PER_BROKER),
            _row("ssl.protocol", _STRING, "TLSv1.3", update=_PER_BROKER),
            _row("ssl.provider", _STRING, None, update=_PER_BROKER),
            _row("ssl.secure.random.implementation", _STRING, None, update=_PER_BROKER),
            _row("ssl.trustmanager.algorithm", _STRING, "PKIX", update=_PER_BROKER),
        ),
    ),
    (
        "a new certificate may have other names",
        (
            _row("ssl.allow.dn.changes", _BOOLEAN, False),
            _row("ssl.allow.san.changes", _BOOLEAN, False),
        ),
    ),
)

# (what to do instead, the config)
_REFUSED: tuple[tuple[str, ConfigDef], ...] = (
    (
        "a Java class cannot be loaded here: remove this setting",
        _row(
            "principal.builder.class",
            _CLASS,
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
            update=_PER_BROKER,
        ),
    ),
    (
        "a Java class cannot be loaded here: remove this setting; topics are then created "
        "without that policy",
        _row("create.topic.policy.class.name", _CLASS, None),
    ),
    (
        "a Java class cannot be loaded here: remove this setting; configs then change without "
        "that policy",
        _row("alter.config.policy.class.name", _CLASS, None),
    ),
    (
        "a Java class cannot be loaded here: remove this setting",
        _row("client.quota.callback.class", _CLASS, None),
    ),
    (
        "tiered storage is not supported: remove this setting and keep the logs on local disks",
        _row("remote.log.storage.system.enable", _BOOLEAN, False),
    ),
    (
        "a Java class cannot be loaded here: write the values themselves into the file",
        _row("config.providers", _LIST, (), update=_CLUSTER_WIDE),
    ),
    (
        "log dirs cannot be cordoned yet: remove the folder from log.dirs",
        _row("cordoned.log.dirs", _LIST, (), update=_PER_BROKER),
    ),
    (
        "a Java class cannot be loaded here: remove this setting",
        _row("ssl.engine.factory.class", _CLASS, None, update=_PER_BROKER),
    ),
)

NO_EFFECT: dict[str, ConfigDef] = {
    row.name: row._replace(documentation=f"No effect here: {why}.")
    for why, rows in _NO_EFFECT
    for row in rows
}

# Config to what to do instead.
REFUSED: dict[str, tuple[ConfigDef, str]] = {
    row.name: (
        row._replace(documentation=f"Refused, unless it has its default: {instead}."),
        instead,
    )
    for instead, row in _REFUSED
}

# Kafka has these only as settings of a running broker; they are shown only if they are set.
DYNAMIC_ONLY: dict[str, ConfigDef] = {
    name: ConfigDef(
        name,
        _LONG,
        MAX_LONG,
        documentation,
        Importance.MEDIUM,
        at_least(0),
        (),
        _CLUSTER_WIDE,
    )
    for name, documentation in (
        (
            "follower.replication.throttled.rate",
            "The rate, in bytes per second, at which this broker copies replicas that are behind "
            "and are listed in follower.replication.throttled.replicas.",
        ),
        (
            "leader.replication.throttled.rate",
            "The rate, in bytes per second, at which this broker sends replicas listed in "
            "leader.replication.throttled.replicas to followers that are behind.",
        ),
        (
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "No effect here: moves between log dirs are not throttled.",
        ),
    )
}

# A running broker may change these to at most twice and at least half of their value (KIP-226).
THREAD_COUNTS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
