"""A uvloop event loop whose callbacks are timed by a LoopWatch. uvloop does not report its calls,
so the callbacks are wrapped.

uvloop's own work is not timed: it accepts connections and writes what a socket did not accept.
connection.pyx times reads of connections.
"""

import uvloop

cdef object base_call_soon = uvloop.Loop.call_soon
cdef object base_call_soon_threadsafe = uvloop.Loop.call_soon_threadsafe
cdef object base_call_later = uvloop.Loop.call_later
cdef object base_add_reader = uvloop.Loop.add_reader
cdef object base_add_writer = uvloop.Loop.add_writer


class WatchedLoop(uvloop.Loop):
    """The loop; ``watch`` is its clock."""

    def __init__(self, watch):
        super().__init__()
        self.watch = watch
        self._run = watch.run

    def call_soon(self, callback, *args, context=None):
        """As asyncio's. Tasks and futures come here, too."""
        if context is None and not args:            # the usual case; the rest doubles the cost
            return base_call_soon(self, self._run, callback)
        return base_call_soon(self, self._run, callback, *args, context=context)

    def call_soon_threadsafe(self, callback, *args, context=None):
        """As asyncio's."""
        return base_call_soon_threadsafe(self, self._run, callback, *args, context=context)

    def call_later(self, delay, callback, *args, context=None):
        """As asyncio's; call_at comes here, too."""
        return base_call_later(self, delay, self._run, callback, *args, context=context)

    def add_reader(self, fd, callback, *args):
        """As asyncio's."""
        return base_add_reader(self, fd, self._run, callback, *args)

    def add_writer(self, fd, callback, *args):
        """As asyncio's."""
        return base_add_writer(self, fd, self._run, callback, *args)
