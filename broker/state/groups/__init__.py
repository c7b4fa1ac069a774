"""Consumer groups of all kinds as values (Kafka's GroupCoordinator, without its loop): what
classic, consumer, share and streams groups share, and their committed offsets. It uses no clock,
file or connection.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
