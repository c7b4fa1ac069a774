"""The broker configs of SASL, with Kafka's names and defaults.

One part of the table in broker_configs.py. A listener may have its own of them, and of some each
mechanism: ``listener.name.NAME.scram-sha-256.connections.max.reauth.ms``. What they do is
kstore/net/sasl_server.py's and broker/runtime/security/sasl_listeners.py's.
"""

from __future__ import annotations

from kstore.config.definition import ConfigDef, ConfigType, Importance, UpdateMode, at_least

__all__ = ["MECHANISM_PREFIXES", "PER_MECHANISM", "SASL_CONFIGS"]

_INT, _LONG, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_LIST, _PASSWORD, _CLASS = ConfigType.LIST, ConfigType.PASSWORD, ConfigType.CLASS
_BOOLEAN = ConfigType.BOOLEAN
_MEDIUM, _LOW = Importance.MEDIUM, Importance.LOW
_PER_BROKER = UpdateMode.PER_BROKER

MECHANISM_PREFIXES = ("plain.", "scram-sha-256.", "scram-sha-512.", "oauthbearer.", "gssapi.")
"""How a mechanism is named in a setting."""

SASL_CONFIGS = (
    ConfigDef(
        "sasl.enabled.mechanisms", _LIST, ("GSSAPI",),
        "By which mechanisms clients may show who they are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,"
        " OAUTHBEARER. Kafka's default, GSSAPI (Kerberos), is not spoken here: a listener with SASL"
        " needs this to be set.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI",
        "By which mechanism this broker shows others who it is, where their listener has SASL.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "sasl.jaas.config", _PASSWORD, None,
        "For a listener and a mechanism (listener.name.NAME.plain.sasl.jaas.config): the users of"
        " PLAIN, and the name that this broker uses for others, as 'PlainLoginModule required"
        ' username="broker" password="..." user_broker="..." user_alice="...";\'.',
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "sasl.server.callback.handler.class", _CLASS, None,
        "Kafka's own classes are taken by name, and mean what is done here anyway; others can't be"
        " loaded.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.server.max.receive.size", _INT, 524_288,
        "The largest request of a client that has not shown who it is.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "connections.max.reauth.ms", _LONG, 0,
        "How long a client's authentication holds before it has to be renewed (KIP-368), at most;"
        " 0: for as long as the connection, or until its token ends.",
        _MEDIUM,
    ),
    ConfigDef(
        "connection.failed.authentication.delay.ms", _INT, 100,
        "How long a client waits to hear that it could not be authenticated.", _LOW, at_least(0),
    ),
    ConfigDef(
        "kstore.authentication.timeout.ms", _INT, 10_000,
        "How long a client may take to shake hands (TLS), and then to show who it is (SASL).",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "kstore.end.sessions.of.changed.users", _BOOLEAN, True,
        "Whether the connections of a user of SCRAM or PLAIN are closed when the user is deleted or"
        " gets another password. As whom brokers log in to each other is left out, so that a"
        " password of theirs can be changed broker by broker.",
        _LOW, None, (), UpdateMode.CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.max.unauthenticated.connections", _INT, 1000,
        "How many connections there may be at once that shake hands still, or have not shown who"
        " they are; with one more, the oldest of them is closed.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.url", _STRING, None,
        "Where the keys are by which tokens are signed (a JWK set): a URL of file:, https: or"
        " http:.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000,
        "How often the keys are read anew.", _LOW, at_least(1),
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _LONG, 100,
        "How long to wait before keys that could not be read are asked for again; longer each"
        " time.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _LONG, 10_000,
        "How long to wait for that at most.", _LOW, at_least(1),
    ),
    ConfigDef(
        "sasl.oauthbearer.expected.audience", _LIST, (),
        "Whom a token has to be meant for: any of these; empty: that is not looked at.", _LOW,
    ),
    ConfigDef(
        "sasl.oauthbearer.expected.issuer", _STRING, None,
        "Who has to have issued a token; by default that is not looked at.", _LOW,
    ),
    ConfigDef(
        "sasl.oauthbearer.clock.skew.seconds", _INT, 30,
        "By how much the clock of who issues tokens may differ.", _LOW, at_least(0),
    ),
    ConfigDef(
        "sasl.oauthbearer.scope.claim.name", _STRING, "scope",
        "The claim of a token that lists its scopes.", _LOW,
    ),
    ConfigDef(
        "sasl.oauthbearer.sub.claim.name", _STRING, "sub",
        "The claim of a token that names the user.", _LOW,
    ),
    ConfigDef(
        "sasl.oauthbearer.token.endpoint.url", _STRING, None,
        "Where this broker gets the token that it shows to other brokers.", _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.id", _STRING, None,
        "As whom it asks for that.", _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None,
        "The secret with which it asks for that.", _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.scope", _STRING, None, "Which scope it asks for.", _MEDIUM,
    ),
)  # fmt: skip

PER_MECHANISM = frozenset(
    {
        "sasl.jaas.config",
        "connections.max.reauth.ms",
        "sasl.server.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
    }
)
"""Of which each mechanism of a listener may have its own."""
