"""FastStream: a subscriber in a group reads orders and publishes each one's total elsewhere.

Arguments: the client (confluent or aiokafka), bootstrap servers, source topic, target topic.
Prints the totals that arrived, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from pydantic import BaseModel

which, bootstrap, source, target = sys.argv[1:]
if which == "confluent":
    from faststream.confluent import KafkaBroker
else:
    from faststream.kafka import KafkaBroker

ORDERS = 20


class Order(BaseModel):
    name: str
    price: int
    count: int


broker = KafkaBroker(bootstrap)
totals: list[int] = []
done = asyncio.Event()


@broker.subscriber(source, group_id=f"{source}-orders", auto_offset_reset="earliest")
@broker.publisher(target)
async def total(order: Order) -> int:
    return order.price * order.count


@broker.subscriber(target, group_id=f"{source}-totals", auto_offset_reset="earliest")
async def collect(value: int) -> None:
    totals.append(value)
    if len(totals) == ORDERS:
        done.set()


async def main() -> None:
    async with broker:
        await broker.start()
        for number in range(ORDERS):
            order = Order(name=f"order {number}", price=number, count=3)
            await broker.publish(order, source, key=b"%d" % number)
        await asyncio.wait_for(done.wait(), 60)
    print(json.dumps(sorted(totals)))


asyncio.run(main())
