"""Backups of the data of a broker, a cluster or an embedded log dir: created from the files while
they are written, verified, and restored. It changes none of the files that it backs up, and sends
no requests.

May import: kstore._fast.record, kstore.env, kstore.log, kstore.private_files,
    kstore.protocol.coordinator_records, kstore.record, kstore.types.
"""
