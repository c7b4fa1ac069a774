"""Settings as they change: the watch over the store, and what each part takes over. It decides
nothing about a value; broker.state.metadata does.

May import: kstore.broker.coordination, kstore.broker.runtime.
"""
