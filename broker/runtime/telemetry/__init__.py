"""The last values of what clients have pushed (KIP-714). It lets no client choose the labels of
another.

May import: kstore.broker.state.
"""
