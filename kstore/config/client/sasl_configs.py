"""Settings of the clients' SASL, with Kafka's names and defaults, and librdkafka's `sasl.username`
and `sasl.password`.

One part of the table in client_security_configs.py.
"""

from __future__ import annotations

from kstore.config.definition import ConfigDef, ConfigType, Importance, at_least, between, one_of

__all__ = ["RETRIEVERS", "SASL_CONFIGS"]

_STRING, _PASSWORD, _CLASS = ConfigType.STRING, ConfigType.PASSWORD, ConfigType.CLASS
_INT, _SHORT, _LONG = ConfigType.INT, ConfigType.SHORT, ConfigType.LONG
_DOUBLE, _BOOLEAN = ConfigType.DOUBLE, ConfigType.BOOLEAN
_MEDIUM, _LOW = Importance.MEDIUM, Importance.LOW

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
RETRIEVERS = {
    f"{_PACKAGE}DefaultJwtRetriever": "default",
    f"{_PACKAGE}FileJwtRetriever": "file",
    f"{_PACKAGE}ClientCredentialsJwtRetriever": "client-credentials",
    f"{_PACKAGE}JwtBearerJwtRetriever": "jwt-bearer",
}
"""Kafka's classes that get tokens, and what they are here."""

_IDENTITY = (
    ConfigDef(
        "sasl.mechanism", _STRING, "GSSAPI",
        "How the client proves who it is: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."
        " Kafka's default, GSSAPI, is not supported.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.jaas.config", _PASSWORD, None,
        "User and password in JAAS form, `LoginModule required username=\"..\" password=\"..\";`.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.username", _STRING, None,
        "The user of PLAIN and SCRAM, in place of sasl.jaas.config.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.password", _PASSWORD, None,
        "The password of PLAIN and SCRAM, in place of sasl.jaas.config.",
        _MEDIUM,
    ),
)  # fmt: skip

_LOGIN = (
    ConfigDef(
        "sasl.login.callback.handler.class", _CLASS, None,
        "OAUTHBEARER: in Python a callable that returns a token, or (token, seconds since 1970 at"
        " which it ends); as text the name of Kafka's OAuthBearerLoginCallbackHandler, which says"
        " what the settings say anyway.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.login.connect.timeout.ms", _INT, None,
        "How long connecting to the token endpoint may take; by default 10 s.",
    ),
    ConfigDef(
        "sasl.login.read.timeout.ms", _INT, None,
        "How long the token endpoint may take to answer; by default 10 s.",
    ),
    ConfigDef(
        "sasl.login.refresh.window.factor", _DOUBLE, 0.8,
        "A token is replaced after this part of its life.",
        _LOW, between(0.5, 1.0),
    ),
    ConfigDef(
        "sasl.login.refresh.window.jitter", _DOUBLE, 0.05,
        "A random part of the token's life that is added to that.",
        _LOW, between(0.0, 0.25),
    ),
    ConfigDef(
        "sasl.login.refresh.min.period.seconds", _SHORT, 60,
        "A token is not replaced sooner than this after it was got, unless it ends before.",
        _LOW, between(0, 900),
    ),
    ConfigDef(
        "sasl.login.refresh.buffer.seconds", _SHORT, 300,
        "A token is replaced at least so long before its end, if it lives long enough.",
        _LOW, between(0, 3600),
    ),
    ConfigDef(
        "sasl.login.retry.backoff.ms", _LONG, 100,
        "The first pause after the token endpoint did not answer.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "sasl.login.retry.backoff.max.ms", _LONG, 10_000,
        "The longest pause between tries at the token endpoint; as long is tried in all.",
        _LOW, at_least(0),
    ),
)  # fmt: skip

_OAUTH = (
    ConfigDef(
        "sasl.oauthbearer.token.endpoint.url", _STRING, None,
        "Where tokens come from: a token endpoint (http or https), or a file (file:///path) that"
        " holds one and is read again when it changes.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.id", _STRING, None,
        "The client's id at the token endpoint.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None,
        "The client's secret at the token endpoint.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.scope", _STRING, None, "The scope to ask the token endpoint for.", _MEDIUM
    ),
    ConfigDef(
        "sasl.oauthbearer.header.urlencode", _BOOLEAN, False,
        "Whether id and secret are URL-encoded in the Authorization header (RFC 6749).",
    ),
    ConfigDef(
        "sasl.oauthbearer.jwt.retriever.class", _CLASS, f"{_PACKAGE}DefaultJwtRetriever",
        "How tokens are got: Kafka's DefaultJwtRetriever (by the URL), FileJwtRetriever,"
        " ClientCredentialsJwtRetriever or JwtBearerJwtRetriever.",
        _MEDIUM, one_of(*RETRIEVERS),
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.file", _STRING, None,
        "JwtBearerJwtRetriever: a file with the assertion that is exchanged for a token.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.private.key.file", _STRING, None,
        "The PEM file of the key that signs assertions made here (with kstore[sasl]).",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None,
        "That key's password.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.algorithm", _STRING, "RS256", "How assertions are signed.",
        _MEDIUM, one_of("ES256", "RS256", any_case=True),
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.template.file", _STRING, None,
        "A JSON file with header and payload that assertions made here begin with.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.aud", _STRING, None, "An assertion's audience.", _MEDIUM
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.iss", _STRING, None, "An assertion's issuer.", _MEDIUM
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.sub", _STRING, None, "An assertion's subject.", _MEDIUM
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.exp.seconds", _INT, 300,
        "How long an assertion holds.",
        _LOW, between(0, 86_400),
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.nbf.seconds", _INT, 60,
        "How long before now an assertion begins to hold.",
        _LOW, between(0, 3600),
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.jti.include", _BOOLEAN, False,
        "Whether an assertion gets a random id.",
        _MEDIUM,
    ),
)  # fmt: skip

SASL_CONFIGS = (*_IDENTITY, *_LOGIN, *_OAUTH)
