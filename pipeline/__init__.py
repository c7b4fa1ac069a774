"""kstore.pipeline.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core.group,
    kstore.clients.io, kstore.clients.replicator, kstore.config, kstore.errors,
    kstore.pipeline.segments, kstore.pipeline.sink, kstore.protocol, kstore.record, kstore.types.
"""

if __name__ != "kstore.pipeline":
    raise ImportError("this package is imported as kstore.pipeline, not as " + repr(__name__))
