"""A plain client: reads a stream, or publishes what it is given, with nats-py alone."""
import asyncio
import base64
import json
import sys

import nats


async def consume(js, stream, count):
    subscription = await js.pull_subscribe(f"{stream}.>", durable="plain")
    left = int(count)
    while left > 0:
        for message in await subscription.fetch(left, timeout=10):
            print(json.dumps({
                "subject": message.subject,
                "headers": message.headers or {},
                "body": base64.b64encode(message.data).decode(),
            }))
            await message.ack()
            left -= 1


async def publish(js, messages):
    for message in json.loads(messages):
        ack = await js.publish(
            message["subject"], base64.b64decode(message["body"]), headers=message.get("headers")
        )
        print(json.dumps({"stream": ack.stream, "seq": ack.seq}))


async def main(url, action, *arguments):
    connection = await nats.connect(url)
    await {"consume": consume, "publish": publish}[action](connection.jetstream(), *arguments)
    await connection.close()


asyncio.run(main(*sys.argv[1:]))
