"""Group commit: of all threads that wait for the disk, one syncs for all."""

class SyncGroup:
    """The waiters for one log's disk, without the GIL."""

    def wait(self, target: int) -> bool:
        """Returns False when everything below ``target`` is durable, True when the caller must
        sync: then it must call ``done`` in any case.
        """
    def done(self, durable: int) -> None:
        """The leader's sync has finished; everything below ``durable`` is durable now (the old
        value if it failed: another waiter tries next).
        """
    def rewind(self, durable: int) -> None:
        """The log was truncated: nothing at or after ``durable`` counts as durable."""
