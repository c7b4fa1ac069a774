"""The broker configs of the authorizer, with the names and defaults that Kafka's has.

One part of the table in broker_configs.py. How a principal is written stands here, too:
every start of a broker reads this file, and not kstore.acls.
"""

from __future__ import annotations

from kstore.config.definition import ConfigDef, ConfigType, Importance, Validator

__all__ = ["AUTHORIZER_CONFIGS", "is_principal", "split_principals"]

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
FORMER = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
"""The names of Kafka's ACLs in ZooKeeper, whose rules are the same."""


def split_principals(text: str) -> frozenset[str]:
    """The principals of a list like ``User:alice;User:CN=bob,O=c``."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


def is_principal(text: str) -> bool:
    """Whether it is a type and a name, with a colon between them."""
    kind, colon, _ = text.partition(":")
    return bool(kind and colon)


AUTHORIZER_CONFIGS = (
    ConfigDef(
        "authorizer.class.name", ConfigType.STRING, "",
        f"{STANDARD} to check what clients may do by ACLs (kstore acl), with that class's rules;"
        " empty: everybody may do everything.",
        Importance.LOW,
        Validator(lambda name: name in {"", STANDARD, *FORMER}, f"empty or {STANDARD}"),
    ),
    ConfigDef(
        "super.users", ConfigType.STRING, "",
        "Super users, who may do everything whatever the ACLs say: principals such as "
        "User:alice;User:bob.",
        Importance.MEDIUM,
        Validator(
            lambda text: all(map(is_principal, split_principals(text))),
            "principals like User:alice;User:bob",
        ),
    ),
    ConfigDef(
        "allow.everyone.if.no.acl.found", ConfigType.BOOLEAN, False,
        "Whether everyone may use a resource that has no ACL.",
        Importance.MEDIUM,
    ),
)  # fmt: skip
