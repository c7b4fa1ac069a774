"""DescribeClientQuotas and AlterClientQuotas. Throttling is in runtime/quotas.

May import: kstore.broker.api, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.errors, kstore.protocol.
"""
