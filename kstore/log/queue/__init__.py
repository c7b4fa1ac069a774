"""A log as a work queue: each message is leased to one worker at a time, in any process of this
machine, until it is acknowledged; what a worker does not finish is delivered again.

May import: kstore._fast.queue, kstore._fast.record, kstore.items, kstore.log,
    kstore.private_files, kstore.record, kstore.types.
"""

from kstore.log.queue.message import DeadLetter, QueueMessage
from kstore.log.queue.queue import Queue, QueueStats

__all__ = ["DeadLetter", "Queue", "QueueMessage", "QueueStats"]
