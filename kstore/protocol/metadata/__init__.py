"""Messages about the cluster: ApiVersions, Metadata, DescribeCluster, topics, configs, features. It
has no metadata image.

May import: kstore.protocol.
"""
