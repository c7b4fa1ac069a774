"""The parts of a Produce request that threads do: a look into batches, and appends; see
produce_later.pyx.
"""

from kstore._fast.log.append_queue import AppendJob

class FrameMemory:
    """The bytes of a request that threads append from."""

class ProduceJob(AppendJob):
    """A batch of a request, appended by a thread."""

    frame_bytes: int
    """The size of the batch in the request."""

class ProduceAppends:
    """The appends of threads for the oldest unanswered request of a connection."""
