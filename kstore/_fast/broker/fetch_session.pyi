"""What a fetch asks of one partition, and the fetch session (KIP-227) over them; see
fetch_session.pyx.
"""

class FetchPart:
    """One partition of a fetch: what is asked, what was told before, and what a look at
    the log found.
    """

class FetchSession:
    """One client's set of partitions and what each was last told."""

    session_id: int
    principal: str
    by_id: bool
    privileged: bool
    created_ms: int
    last_used_ms: int
    def __init__(
        self,
        session_id: int,
        parts: list[FetchPart],
        *,
        principal: str,
        listener: object,
        by_id: bool,
        privileged: bool,
        now_ms: int,
    ) -> None: ...
    @property
    def size(self) -> int:
        """How many partitions it holds."""
