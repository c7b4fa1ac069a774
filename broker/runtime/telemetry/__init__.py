"""The last values of metrics that clients have pushed (KIP-714). A client cannot choose the labels
of another.

May import: kstore.broker.state.
"""
