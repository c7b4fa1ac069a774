"""``kstore backup``: finding what is to be backed up, and telling what was done. The work is done
by kstore.backup.

May import: kstore.backup, kstore.broker.coordination, kstore.cli, kstore.clients,
    kstore.config, kstore.log.segments, kstore.version.
"""
