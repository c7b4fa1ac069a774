"""The decisions of Kafka's GroupCoordinator: what classic, consumer, share and streams groups have
in common, and their committed offsets. It uses no clock, file or connection.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
