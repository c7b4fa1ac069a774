"""The last values of metrics that clients have pushed (KIP-714). A client cannot set the labels of
another client.

May import: kstore.broker.state.
"""
