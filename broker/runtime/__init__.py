"""What the broker does with its decisions: local replicas, topics, shards, on the loop and on the
disk.
"""
