"""The broker configs of the authorizer, with the names and defaults that Kafka's has.

One part of the table in broker_configs.py.
"""

from __future__ import annotations

from kstore.acls import is_principal, split_principals
from kstore.config.definition import ConfigDef, ConfigType, Importance, Validator

__all__ = ["AUTHORIZER_CONFIGS"]

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
FORMER = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
"""The names of Kafka's ACLs in ZooKeeper, whose rules are the same."""

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
        "Who may do everything, whatever the ACLs say: principals like User:alice;User:bob.",
        Importance.MEDIUM,
        Validator(
            lambda text: all(map(is_principal, split_principals(text))),
            "principals like User:alice;User:bob",
        ),
    ),
    ConfigDef(
        "allow.everyone.if.no.acl.found", ConfigType.BOOLEAN, False,
        "Whether everybody may use what no ACL is about.",
        Importance.MEDIUM,
    ),
)  # fmt: skip
