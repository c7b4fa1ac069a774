"""The APIs of Kafka that kstore neither serves nor asks for. Their declarations wait here, and the
tests of declarations cover them; who serves one moves its module to kstore.protocol and its row to
the registry.
"""

from __future__ import annotations

from kstore.protocol.registry import APIS, Api
from kstore.protocol.schema import Message
from tests.reference.unserved import delegation_tokens, share_groups, share_offsets

__all__ = ["MODULES", "all_apis"]

MODULES = {
    "delegation_tokens": delegation_tokens,
    "share_groups": share_groups,
    "share_offsets": share_offsets,
}


class UnservedApi(Api):
    """A row as the registry's, whose classes are in a module here."""

    __slots__ = ()

    def _load(self, suffix: str) -> type[Message]:
        cls: type[Message] = getattr(MODULES[self.module], self.name + suffix)
        return cls


UNSERVED: dict[int, Api] = {
    row[0]: UnservedApi(*row)
    for row in (
        (38, "CreateDelegationToken", (1, 3), 2, "delegation_tokens"),
        (39, "RenewDelegationToken", (1, 2), 2, "delegation_tokens"),
        (40, "ExpireDelegationToken", (1, 2), 2, "delegation_tokens"),
        (41, "DescribeDelegationToken", (1, 3), 2, "delegation_tokens"),
        (76, "ShareGroupHeartbeat", (1, 1), 0, "share_groups"),
        (77, "ShareGroupDescribe", (1, 1), 0, "share_groups"),
        (78, "ShareFetch", (1, 2), 0, "share_groups"),
        (79, "ShareAcknowledge", (1, 2), 0, "share_groups"),
        (90, "DescribeShareGroupOffsets", (0, 1), 0, "share_offsets"),
        (91, "AlterShareGroupOffsets", (0, 0), 0, "share_offsets"),
        (92, "DeleteShareGroupOffsets", (0, 0), 0, "share_offsets"),
    )
}


def all_apis() -> list[Api]:
    """The registry's rows and these, by key."""
    assert not APIS.keys() & UNSERVED.keys(), "what is served is not declared here"
    return [api for _, api in sorted((APIS | UNSERVED).items())]
