"""A plain RabbitMQ client that knows nothing of txbox: `read QUEUE COUNT` prints messages, `write` publishes those on stdin."""
import base64
import json
import sys

import pika


def jsonable(value):
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return value


def read(channel, queue, count):
    for method, properties, body in channel.consume(queue, inactivity_timeout=10):
        if method is None:
            sys.exit("no more messages came")
        print(json.dumps({
            "exchange": method.exchange,
            "routingKey": method.routing_key,
            "messageId": properties.message_id,
            "type": properties.type,
            "correlationId": properties.correlation_id,
            "timestamp": properties.timestamp,
            "contentType": properties.content_type,
            "deliveryMode": properties.delivery_mode,
            "headers": {name: jsonable(value) for name, value in (properties.headers or {}).items()},
            "body": base64.b64encode(body).decode(),
        }))
        channel.basic_ack(method.delivery_tag)
        count -= 1
        if count == 0:
            return


def write(channel):
    channel.confirm_delivery()
    for line in sys.stdin:
        message = json.loads(line)
        properties = pika.BasicProperties(**message["properties"])
        body = base64.b64decode(message["body"])
        channel.basic_publish(message["exchange"], message["routingKey"], body, properties, mandatory=True)


connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
if sys.argv[2] == "read":
    read(connection.channel(), sys.argv[3], int(sys.argv[4]))
else:
    write(connection.channel())
connection.close()
