"""The metadata image and the rules of what may be in it: topics, configs, features, replica
placement. It knows no coordination store.

May import: kstore.broker.state, kstore.config, kstore.errors.
"""
