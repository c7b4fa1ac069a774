"""Authorization of requests: the table of permissions; requests about ACLs, SCRAM credentials,
delegation tokens and SASL. No other room calls the authorizer directly.

May import: kstore.acls, kstore.broker.api, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.errors, kstore.protocol.security.
"""
