"""The broker configs of TLS, of listeners' protocols and of delegation tokens, with Kafka's
names and defaults.

One part of the table in broker_configs.py. A listener may have its own of them:
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
        "How brokers speak to each other, where inter.broker.listener.name does not say on which"
        " listener: on the first of this protocol.",
        _MEDIUM, one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigDef(
        "ssl.client.auth", _STRING, "none",
        "Whether a client has to show a certificate that the trust store knows: required, requested"
        " (checked where it shows one) or none.",
        _MEDIUM, one_of("required", "requested", "none"), (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "The TLS versions to speak.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.cipher.suites", _LIST, (),
        "The cipher suites to speak, by their TLS names; by default the TLS library's choice.",
        _LOW, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.endpoint.identification.algorithm", _STRING, "https",
        "https checks, when a broker connects to another, that the certificate is the host's; empty"
        " checks only who has signed it.",
        _LOW, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.key.password", _PASSWORD, None, "The password of an encrypted PEM key.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.type", _STRING, "JKS",
        "The form of the key store: PEM, or PKCS12 (with kstore[tls]), which JKS means too; Java's"
        " old form is not read.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.location", _STRING, None,
        "The file with the broker's key and certificates; a change of it is taken over while the"
        " broker runs.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.password", _PASSWORD, None, "The key store's password.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.key", _PASSWORD, None, "The broker's key, as PEM text.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.keystore.certificate.chain", _PASSWORD, None,
        "The certificates that belong to ssl.keystore.key, as PEM text.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.truststore.type", _STRING, "JKS", "The form of the trust store, as ssl.keystore.type.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.truststore.location", _STRING, None,
        "The file with the certificates of whom to trust; by default the system's.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.truststore.password", _PASSWORD, None, "The trust store's password.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.truststore.certificates", _PASSWORD, None,
        "The certificates of whom to trust, as PEM text.",
        _MEDIUM, None, (), _PER_BROKER,
    ),
    ConfigDef(
        "ssl.principal.mapping.rules", _STRING, "DEFAULT",
        "How a client's name comes of its certificate's: RULE:pattern/replacement/[LU] and"
        " DEFAULT, comma-separated; the first that fits is taken.",
        _LOW,
    ),
    ConfigDef(
        "delegation.token.secret.key", _PASSWORD, None,
        "The key from which the secrets of delegation tokens are derived (KIP-48); the same on all"
        " brokers of a cluster. Without it there are no tokens; with it kstore[tls] is needed.",
        _MEDIUM,
    ),
    ConfigDef(
        "delegation.token.max.lifetime.ms", _LONG, 604_800_000,
        "After this time a token can't be renewed any more.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "delegation.token.expiry.time.ms", _LONG, 86_400_000,
        "A token expires after this time if it is not renewed.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "delegation.token.expiry.check.interval.ms", _LONG, 3_600_000,
        "How often expired tokens are removed from the coordination store.", _LOW, at_least(1),
    ),
)  # fmt: skip

LISTENER_SSL = tuple(row.name for row in SECURITY_CONFIGS if row.name.startswith("ssl."))
"""What a listener may have its own of."""
