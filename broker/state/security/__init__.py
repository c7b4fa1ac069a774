"""Authorization (StandardAuthorizer's rules), and validation of SCRAM credentials. It reads no
store and keeps no passwords.

May import: kstore.acls, kstore.broker.state, kstore.errors.
"""
