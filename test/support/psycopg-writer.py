"""A writer in Python that enqueues through SQL: each line of stdin is a call, its result goes to stdout."""
import json
import sys

import psycopg
from psycopg.types.json import Json, Jsonb

ENQUEUE = """select txbox.enqueue_v1(stream => %(stream)s, type => %(type)s, payload => %(payload)s, key => %(key)s,
  headers => %(headers)s, id => %(id)s, deliver_at => %(deliver_at)s)"""


def payload_of(call):
    kind, value = call["as"], call["payload"]
    return {"json": Json, "jsonb": Jsonb, "text": json.dumps, "bytes": lambda text: text.encode()}[kind](value)


def enqueue(connection, call):
    headers = call.get("headers")
    return connection.execute(ENQUEUE, {
        "stream": call["stream"],
        "type": call["type"],
        "payload": payload_of(call),
        "key": call.get("key"),
        "headers": None if headers is None else Jsonb(headers),
        "id": call.get("id"),
        "deliver_at": call.get("deliverAt"),
    }).fetchone()[0]


with psycopg.connect(sys.argv[1]) as connection:
    for line in sys.stdin:
        call = json.loads(line)
        try:
            with connection.transaction(force_rollback=call.get("rollback", False)):
                answer = {"id": enqueue(connection, call)}
        except psycopg.Error as error:
            answer = {"sqlstate": error.sqlstate, "field": error.diag.column_name, "message": error.diag.message_primary}
        print(json.dumps(answer), flush=True)
