"""A kstore broker with the rule that KAFKA-19779 replaces: a commit counts only in exactly the
member's epoch. `python -m tests.documents.strict_commits serve ...` is `kstore serve` with it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

from kstore.__main__ import main
from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.contract import CommitClaim
from kstore.errors import ErrorCode
from tests.conformance.kstore_broker import KstoreBroker


class StrictBroker(KstoreBroker):
    """Such a broker as a process."""

    def command(self) -> list[str]:
        """The command line of the other one, with this module in its place."""
        module = "tests.documents.strict_commits"
        return [module if word == "kstore" else word for word in super().command()]


def _strict(
    self: ConsumerGroup, claim: CommitClaim, topic: str, topic_id: UUID, partition: int
) -> int:
    member = self.members.get(claim.member_id)
    if member is None or claim.epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if claim.transactional else ErrorCode.STALE_MEMBER_EPOCH


if __name__ == "__main__":
    ConsumerGroup.partition_commit_error = _strict  # type: ignore[method-assign]
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
