"""The metadata image and the rules for its contents: topics, settings, features, replica
assignment. It does not use the coordination store.

May import: kstore.broker.state, kstore.config, kstore.errors.
"""
