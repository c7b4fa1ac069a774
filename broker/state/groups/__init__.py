"""Consumer groups of all kinds as values (Kafka's GroupCoordinator, without its loop): what is
common to classic, consumer, share and streams groups, and their committed offsets. It reads no
clock, file or connection.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
