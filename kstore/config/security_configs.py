"""The broker configs of TLS, of listeners' protocols and of delegation tokens, with Kafka's
names and defaults.

A part of the table in broker_configs.py. A listener can have its own values:
``listener.name.NAME.ssl.keystore.location``.
"""

from __future__ import annotations

from kstore.config.definition import (
    ConfigDef,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
    one_of,
)

__all__ = ["LISTENER_SSL", "SECURITY_CONFIGS"]

_STRING, _LIST, _PASSWORD = ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD
_LONG = ConfigType.LONG
_MEDIUM, _LOW = Importance.MEDIUM, Importance.LOW
_PER_BROKER = UpdateMode.PER_BROKER

SECURITY_CONFIGS = (
    ConfigDef(
        "security.inter.broker.protocol", _STRING, "PLAINTEXT",
        "The security protocol between brokers, if inter.broker.listener.name is not set: the "
        "first listener with this protocol is used.",
        _MEDIUM, one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigDef(
        "ssl.client.auth", _STRING, "none",
        "Whether clients must present a certificate: required, requested (checked if the client "
        "presents one) or none.",
        _MEDIUM, one_of("required", "requested", "none"), (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"),
        "The allowed TLS versions.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.cipher.suites", _LIST, (),
        "The allowed cipher suites, by their TLS names; by default the TLS library decides.",
        _LOW, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.endpoint.identification.algorithm", _STRING, "https",
        "https: when this broker connects to another one, it checks that the certificate matches "
        "the host name. Empty: only the signature is checked.",
        _LOW, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.key.password", _PASSWORD, None, "The password of an encrypted PEM key.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.type", _STRING, "JKS",
        "The format of the key store: PEM, or PKCS12 (needs kstore[tls]). JKS is read as PKCS12; "
        "Java's old JKS format is not supported.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.location", _STRING, None,
        "The file with the broker's key and certificates. The broker notices changes while it "
        "runs.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.password", _PASSWORD, None, "The key store's password.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.key", _PASSWORD, None, "The broker's private key, as PEM text.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.certificate.chain", _PASSWORD, None,
        "The certificate chain of ssl.keystore.key, as PEM text.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.truststore.type", _STRING, "JKS",
        "The format of the trust store; see ssl.keystore.type.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.truststore.location", _STRING, None,
        "The file with the trusted certificates; by default the system's.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.truststore.password", _PASSWORD, None, "The trust store's password.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.truststore.certificates", _PASSWORD, None,
        "The trusted certificates, as PEM text.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.principal.mapping.rules", _STRING, "DEFAULT",
        "Rules that map the name in a client's certificate to a user: "
        "RULE:pattern/replacement/[LU] and DEFAULT, separated by commas. The first rule that "
        "matches is used.",
        _LOW,
    ),
    ConfigDef(
        "delegation.token.secret.key", _PASSWORD, None,
        "The key from which the secrets of delegation tokens are derived (KIP-48). It must be the "
        "same on all brokers of a cluster. Delegation tokens are off without it, and need "
        "kstore[tls].",
        _MEDIUM,
    ),
    ConfigDef(
        "delegation.token.max.lifetime.ms", _LONG, 604_800_000,
        "The age at which a token can no longer be renewed.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "delegation.token.expiry.time.ms", _LONG, 86_400_000,
        "The time after which a token expires if it is not renewed.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "delegation.token.expiry.check.interval.ms", _LONG, 3_600_000,
        "How often expired tokens are removed from the coordination store.", _LOW, at_least(1),
    ),
)  # fmt: skip

LISTENER_SSL = tuple(row.name for row in SECURITY_CONFIGS if row.name.startswith("ssl."))
"""Settings that a listener can have."""
