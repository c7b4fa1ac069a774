"""The cases of share groups that probe.py sends to both brokers."""
