"""The request for one partition in a fetch, and the fetch session (KIP-227); see
fetch_session.pyx.
"""

class FetchPart:
    """A partition of a fetch: the request, the last values in a response, and the current state of
    the log.
    """

class FetchSession:
    """One client's set of partitions, with the last values that were sent for each."""

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
        """The number of its partitions."""
