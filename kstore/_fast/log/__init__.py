"""The log engine in C: segment files, the append core, views for readers, producers, epochs and
compaction. It knows nothing about brokers and connections; settings come as arguments.

May import: kstore._fast.disk, kstore._fast.error_codes, kstore._fast.log.clock,
    kstore._fast.log.read_hints, kstore._fast.log.record_at, kstore._fast.record,
    kstore._fast.shared.
"""
