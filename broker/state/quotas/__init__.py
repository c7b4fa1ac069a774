"""The rules of client quotas: entities, limits, measured rates and throttle times. It does not
throttle clients.

May import: kstore.errors.
"""
