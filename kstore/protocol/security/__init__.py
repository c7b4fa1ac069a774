"""Messages of security: ACLs, SASL, SCRAM credentials, delegation tokens. It checks no password and
no permission.

May import: kstore.protocol.
"""
