"""The metadata image and the rules for its contents: topics, configs, features, replica placement.
It does not use the coordination store.

May import: kstore.broker.state, kstore.config, kstore.errors.
"""
