"""Client quotas as values: entities, limits, measured rates and throttle times. It throttles no
clients itself.

May import: kstore.errors.
"""
