"""The clients' settings with Kafka's names, and their parser. It opens nothing.

May import: kstore.config, kstore.items.
"""
