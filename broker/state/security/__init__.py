"""Authorization by StandardAuthorizer's rules, and the rules of SCRAM credentials and delegation
tokens. It reads no store.

May import: kstore.acls, kstore.broker.state, kstore.errors.
"""
