"""Client quotas as values: entities, limits, measured rates and the time to wait. It delays
nobody.

May import: kstore.errors.
"""
