"""Backups of the data of a broker, a cluster or an embedded log dir: made from the files while they
are written, checked, and restored. It changes nothing of what it backs up, and asks no broker.

May import: kstore._fast.record, kstore.env, kstore.log, kstore.private_files,
    kstore.protocol.coordinator_records, kstore.record, kstore.types.
"""
