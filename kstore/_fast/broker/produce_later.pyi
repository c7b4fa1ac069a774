"""What of a Produce request is left to threads: a look into batches, and appends; see
produce_later.pyx."""

from kstore._fast.log.append_queue import AppendJob

class FrameMemory:
    """The bytes of a request that threads append from."""

class ProduceJob(AppendJob):
    """The batch at one place of a request, appended by a thread."""

    frame_bytes: int
    """The size of the batch, as it came."""

class ProduceAppends:
    """What threads append of the first request that a connection has left."""
