"""Messages of security: ACLs, SASL, SCRAM credentials, delegation tokens. It checks no password
and no right.

May import: kstore.protocol.
"""
