"""Three brokers compared with three of Kafka's (cases.py), and with three bare nodes
(bare_nodes.py), which only receive, write, send on and acknowledge.
"""

from bench.compare.cluster.cases import Cluster, cluster_makers, rows

__all__ = ["Cluster", "cluster_makers", "rows"]
