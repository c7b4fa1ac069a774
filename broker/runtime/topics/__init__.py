"""Topics as they are made, grown and deleted, alone and in a cluster; internal topics. It opens
no log by itself; the log manager does.

May import: kstore.broker.coordination, kstore.broker.runtime.broker,
    kstore.broker.runtime.log_dirs, kstore.broker.runtime.metadata, kstore.broker.runtime.peers,
    kstore.broker.runtime.slices, kstore.broker.state.groups.streams,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.log,
    kstore.protocol.metadata.
"""
