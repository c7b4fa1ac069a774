"""Group commit: of all threads that wait for the disk, one syncs for all."""

class SyncGroup:
    """The waiting for one log's disk, without the GIL."""

    def wait(self, target: int) -> bool:
        """Returns False when everything below ``target`` is durable, True when the caller has to
        sync: it then must call ``done``, whatever happens."""
    def done(self, durable: int) -> None:
        """The leader's sync has ended; everything below ``durable`` is on the disk now (the old
        value, if it failed: another waiter leads the next try)."""
    def rewind(self, durable: int) -> None:
        """The log was cut: nothing at or behind ``durable`` counts as on the disk."""
