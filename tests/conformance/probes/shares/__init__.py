"""The cases of share groups that probe.py tells to both brokers."""
