"""What the broker does with its decisions: logs, replicas, topics, coordinators, on the loop and on
the disk.
"""
