"""Changes of settings: watches the store, and applies changes to each part. broker.state.metadata
has the rules for values.

May import: kstore.broker.coordination, kstore.broker.runtime.
"""
