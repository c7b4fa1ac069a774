"""Named, durable positions in logs, shared with consumer groups.

May import: kstore.env, kstore.errors, kstore.items, kstore.log, kstore.private_files,
    kstore.protocol.coordinator_records, kstore.record, kstore.types.
"""
