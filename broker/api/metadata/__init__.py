"""Requests about the cluster: ApiVersions, Metadata, DescribeCluster, configs and features. None of
them changes topics.

May import: kstore._fast.broker, kstore._fast.network, kstore.acls, kstore.broker.api,
    kstore.broker.runtime, kstore.broker.state, kstore.config, kstore.errors, kstore.protocol.
"""
