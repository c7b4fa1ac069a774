"""The broker configs of SASL, with Kafka's names and defaults.

A part of the table in broker_configs.py. A listener can have its own values, and of some each
mechanism: ``listener.name.NAME.scram-sha-256.connections.max.reauth.ms``. kstore/net/sasl_server.py
and broker/runtime/security/sasl_listeners.py use them.
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
"""The name of a mechanism in a setting."""

SASL_CONFIGS = (
    ConfigDef(
        "sasl.enabled.mechanisms", _LIST, ("GSSAPI",),
        "The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. Kafka's default, GSSAPI (Kerberos), is not supported, so a listener with "
        "SASL needs this setting.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI",
        "The SASL mechanism with which this broker logs in to other brokers, if their listener "
        "uses SASL.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "sasl.jaas.config", _PASSWORD, None,
        "For a listener and a mechanism (listener.name.NAME.plain.sasl.jaas.config): the users of "
        "PLAIN, and the user as which this broker logs in to other brokers, as 'PlainLoginModule "
        "required username=\"broker\" password=\"...\" user_broker=\"...\" user_alice=\"...\";'.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "sasl.server.callback.handler.class", _CLASS, None,
        "Only the names of Kafka's own classes are accepted, and change nothing. Other classes "
        "cannot be loaded.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.server.max.receive.size", _INT, 524_288,
        "The maximum size of a request from a client that has not authenticated yet.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "connections.max.reauth.ms", _LONG, 0,
        "How long an authentication is valid. Then the client must authenticate again (KIP-368). "
        "0: as long as the connection, or until the client's token expires.",
        _MEDIUM,
    ),
    ConfigDef(
        "connection.failed.authentication.delay.ms", _INT, 100,
        "How long the broker waits before it answers that authentication has failed.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "kstore.authentication.timeout.ms", _INT, 10_000,
        "The timeout of a client's TLS handshake, and then of its SASL authentication.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "kstore.end.sessions.of.changed.users", _BOOLEAN, True,
        "Whether to close the connections of a SCRAM or PLAIN user when the user is deleted or "
        "gets a new password. The user as which brokers log in to each other is exempt, so that "
        "its password can be changed broker by broker.",
        _LOW, None, (), UpdateMode.CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.max.unauthenticated.connections", _INT, 1000,
        "The maximum number of open connections that have not finished TLS and authentication. If "
        "there are more, the oldest of them is closed.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.url", _STRING, None,
        "The URL of the keys that tokens are signed with (a JWK set): file:, https: or http:.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000,
        "How often the keys are read again.", _LOW, at_least(1),
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _LONG, 100,
        "The first backoff after the keys could not be read; it grows with each failure.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _LONG, 10_000,
        "The maximum backoff between attempts to read the keys.", _LOW, at_least(1),
    ),
    ConfigDef(
        "sasl.oauthbearer.expected.audience", _LIST, (),
        "The accepted audiences: a token must have one of them. Empty: the audience is not "
        "checked.", _LOW,
    ),
    ConfigDef(
        "sasl.oauthbearer.expected.issuer", _STRING, None,
        "The issuer that a token must have. By default the issuer is not checked.", _LOW,
    ),
    ConfigDef(
        "sasl.oauthbearer.clock.skew.seconds", _INT, 30,
        "The maximum clock skew between this broker and the issuer.", _LOW, at_least(0),
    ),
    ConfigDef(
        "sasl.oauthbearer.scope.claim.name", _STRING, "scope",
        "The token's claim that lists its scopes.", _LOW,
    ),
    ConfigDef(
        "sasl.oauthbearer.sub.claim.name", _STRING, "sub",
        "The token's claim that names the user.", _LOW,
    ),
    ConfigDef(
        "sasl.oauthbearer.token.endpoint.url", _STRING, None,
        "The URL from which this broker gets its token for connections to other brokers.", _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.id", _STRING, None,
        "The client id that this broker uses to get its token.", _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None,
        "The client secret that this broker uses to get its token.", _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.scope", _STRING, None, "The scope that this broker asks for.", _MEDIUM,
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
"""Settings that each mechanism of a listener can have."""
