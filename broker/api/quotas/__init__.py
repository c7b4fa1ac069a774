"""DescribeClientQuotas and AlterClientQuotas. It throttles nobody.

May import: kstore.broker.api, kstore.broker.api.requests, kstore.broker.coordination,
    kstore.broker.runtime.broker, kstore.broker.runtime.quotas, kstore.broker.runtime.slices,
    kstore.broker.state.quotas, kstore.errors, kstore.protocol.
"""
