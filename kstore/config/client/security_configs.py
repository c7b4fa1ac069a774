"""Settings of the clients' security, with Kafka's names and defaults: TLS. sasl_configs.py has
SASL's.
"""

from __future__ import annotations

from kstore.config.client.sasl_configs import SASL_CONFIGS
from kstore.config.definition import ConfigDef, ConfigType, Importance, one_of

__all__ = ["SECURITY_CONFIGS"]

_STRING, _LIST, _PASSWORD = ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD
_MEDIUM, _LOW = Importance.MEDIUM, Importance.LOW

SECURITY_CONFIGS = (
    *SASL_CONFIGS,
    ConfigDef(
        "security.protocol", _STRING, "PLAINTEXT", "The protocol for connections to brokers.",
        _MEDIUM, one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", any_case=True),
    ),
    ConfigDef("ssl.protocol", _STRING, "TLSv1.3", "The preferred TLS version.", _MEDIUM),
    ConfigDef(
        "ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"),
        "The TLS versions that are allowed.",
        _MEDIUM,
    ),
    ConfigDef("ssl.cipher.suites", _LIST, (), "The allowed cipher suites; by default Python's."),
    ConfigDef(
        "ssl.endpoint.identification.algorithm", _STRING, "https",
        "https checks that the certificate matches the host name; empty checks nothing.",
    ),
    ConfigDef("ssl.truststore.type", _STRING, "JKS", "The format of the trust store.", _MEDIUM),
    ConfigDef(
        "ssl.truststore.location", _STRING, None,
        "The trusted certificates: a file.",
        _MEDIUM,
    ),
    ConfigDef("ssl.truststore.password", _PASSWORD, None, "The file's password.", _MEDIUM),
    ConfigDef(
        "ssl.truststore.certificates", _PASSWORD, None,
        "The trusted certificates: PEM text.",
        _MEDIUM,
    ),
    ConfigDef("ssl.keystore.type", _STRING, "JKS", "The format of the key store.", _MEDIUM),
    ConfigDef("ssl.keystore.location", _STRING, None, "The client's certificate: a file.", _MEDIUM),
    ConfigDef("ssl.keystore.password", _PASSWORD, None, "The file's password.", _MEDIUM),
    ConfigDef("ssl.keystore.key", _PASSWORD, None, "The client's private key: PEM text.", _MEDIUM),
    ConfigDef(
        "ssl.keystore.certificate.chain", _PASSWORD, None,
        "The client's certificate chain: PEM text.",
        _MEDIUM,
    ),
    ConfigDef("ssl.key.password", _PASSWORD, None, "The private key's password.", _MEDIUM),
)  # fmt: skip
