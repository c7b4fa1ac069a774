"""Changes of settings: the watch on the store, and applying the changes to each part.
broker.state.metadata has the rules for values.

May import: kstore.broker.coordination, kstore.broker.runtime.
"""
