"""Who may do what (StandardAuthorizer's rules), and which SCRAM credentials are valid. It reads
no store and keeps no password.

May import: kstore.acls, kstore.broker.state, kstore.errors.
"""
