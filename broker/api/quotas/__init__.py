"""DescribeClientQuotas and AlterClientQuotas. It throttles nobody.

May import: kstore.broker.api, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.errors, kstore.protocol.
"""
