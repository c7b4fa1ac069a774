"""``kstore backup``: finds what to back up, and reports what was done. kstore.backup does the work.

May import: kstore.backup, kstore.broker.coordination, kstore.cli, kstore.clients,
    kstore.config, kstore.log.segments, kstore.version.
"""
