"""The clients' settings under Kafka's names, and how they are read. It opens nothing.

May import: kstore.config, kstore.items.
"""
