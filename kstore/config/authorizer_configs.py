"""The broker configs of the authorizer, with Kafka's names and defaults.

A part of the table in broker_configs.py. The format of principals is also here, because every start
of a broker reads this file, but not kstore.acls.
"""

from __future__ import annotations

from kstore.config.definition import ConfigDef, ConfigType, Importance, Validator

__all__ = ["AUTHORIZER_CONFIGS", "is_principal", "split_principals"]

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
FORMER = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
"""The class name of Kafka's authorizer with ACLs in ZooKeeper, which has the same rules."""


def split_principals(text: str) -> frozenset[str]:
    """The principals of a list like ``User:alice;User:CN=bob,O=c``."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


def is_principal(text: str) -> bool:
    """Whether it is a type and a name, separated by a colon."""
    kind, colon, _ = text.partition(":")
    return bool(kind and colon)


AUTHORIZER_CONFIGS = (
    ConfigDef(
        "authorizer.class.name", ConfigType.STRING, "",
        f"{STANDARD}: ACLs decide what clients may do (kstore acl), by the rules of that class."
        " Empty: everyone may do everything.",
        Importance.LOW,
        Validator(lambda name: name in {"", STANDARD, *FORMER}, f"empty or {STANDARD}"),
    ),
    ConfigDef(
        "super.users", ConfigType.STRING, "",
        "Principals that may do everything, regardless of ACLs, such as User:alice;User:bob.",
        Importance.MEDIUM,
        Validator(
            lambda text: all(map(is_principal, split_principals(text))),
            "principals like User:alice;User:bob",
        ),
    ),
    ConfigDef(
        "allow.everyone.if.no.acl.found", ConfigType.BOOLEAN, False,
        "Whether everyone may use a resource without ACLs.",
        Importance.MEDIUM,
    ),
)  # fmt: skip
