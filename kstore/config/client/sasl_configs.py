"""Settings of the clients' SASL, with Kafka's names and defaults, and librdkafka's `sasl.username`
and `sasl.password`.

A part of the table in security_configs.py.
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
"""Kafka's classes that fetch tokens, and their meaning here."""

_IDENTITY = (
    ConfigDef(
        "sasl.mechanism", _STRING, "GSSAPI",
        "The SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Kafka's "
        "default, GSSAPI, is not supported.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.jaas.config", _PASSWORD, None,
        "User and password in JAAS format, `LoginModule required username=\"..\" "
        "password=\"..\";`.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.username", _STRING, None,
        "The user name for PLAIN and SCRAM, instead of sasl.jaas.config.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.password", _PASSWORD, None,
        "The password for PLAIN and SCRAM, instead of sasl.jaas.config.",
        _MEDIUM,
    ),
)  # fmt: skip

_LOGIN = (
    ConfigDef(
        "sasl.login.callback.handler.class", _CLASS, None,
        "For OAUTHBEARER. In Python, a callable that returns a token, or (token, expiry in "
        "seconds since 1970). As text, the name of Kafka's OAuthBearerLoginCallbackHandler, "
        "which is the default behavior.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.login.connect.timeout.ms", _INT, None,
        "The timeout of connecting to the token endpoint. By default 10 s.",
    ),
    ConfigDef(
        "sasl.login.read.timeout.ms", _INT, None,
        "The timeout of a response from the token endpoint. By default 10 s.",
    ),
    ConfigDef(
        "sasl.login.refresh.window.factor", _DOUBLE, 0.8,
        "A token is refreshed after this share of its lifetime.",
        _LOW, between(0.5, 1.0),
    ),
    ConfigDef(
        "sasl.login.refresh.window.jitter", _DOUBLE, 0.05,
        "The random share of the token's lifetime that is added to that.",
        _LOW, between(0.0, 0.25),
    ),
    ConfigDef(
        "sasl.login.refresh.min.period.seconds", _SHORT, 60,
        "A token is refreshed no sooner than this after it was fetched, unless it expires before.",
        _LOW, between(0, 900),
    ),
    ConfigDef(
        "sasl.login.refresh.buffer.seconds", _SHORT, 300,
        "A token is refreshed at least this long before it expires, if it lives long enough.",
        _LOW, between(0, 3600),
    ),
    ConfigDef(
        "sasl.login.retry.backoff.ms", _LONG, 100,
        "The first backoff after the token endpoint did not respond.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "sasl.login.retry.backoff.max.ms", _LONG, 10_000,
        "The maximum backoff between attempts to get a token, and the maximum time of all "
        "attempts together.",
        _LOW, at_least(0),
    ),
)  # fmt: skip

_OAUTH = (
    ConfigDef(
        "sasl.oauthbearer.token.endpoint.url", _STRING, None,
        "Where tokens come from: a token endpoint (http or https), or a file (file:///path) that "
        "holds one and is read again when it changes.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.id", _STRING, None,
        "The client id at the token endpoint.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None,
        "The client secret at the token endpoint.",
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
        "How tokens are fetched: Kafka's DefaultJwtRetriever (by the URL), FileJwtRetriever, "
        "ClientCredentialsJwtRetriever or JwtBearerJwtRetriever.",
        _MEDIUM, one_of(*RETRIEVERS),
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.file", _STRING, None,
        "For JwtBearerJwtRetriever: the file with the assertion to exchange for a token.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.private.key.file", _STRING, None,
        "The PEM file of the key that signs assertions created here (needs kstore[sasl]).",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None,
        "That key's password.",
        _MEDIUM,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.algorithm", _STRING, "RS256",
        "The algorithm that signs assertions.",
        _MEDIUM, one_of("ES256", "RS256", any_case=True),
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.template.file", _STRING, None,
        "A JSON file with the header and payload that new assertions start from.",
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
        "How long an assertion is valid.",
        _LOW, between(0, 86_400),
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.nbf.seconds", _INT, 60,
        "How long before now an assertion becomes valid.",
        _LOW, between(0, 3600),
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.jti.include", _BOOLEAN, False,
        "Whether an assertion gets a random id.",
        _MEDIUM,
    ),
)  # fmt: skip

SASL_CONFIGS = (*_IDENTITY, *_LOGIN, *_OAUTH)
