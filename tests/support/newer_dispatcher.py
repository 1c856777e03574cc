"""`federator` as a dispatcher of the next version would be: `python -m tests.support.newer_dispatcher serve …`.

Each record that it writes has fields that the present version does not know, and it takes the fields that newer agents say. To agents that have not
said something new it says nothing new, as the protocol wants.
"""

import msgspec

import federator
from federator.control.record import records
from federator.ports import Put
from federator.wire import link

VERSION = "0.0.newer"
ADDED = b'"mood":"good"'
WITHIN = (b'"moves":{', b'"offer":{', b'"used":{')
"""Where it is added inside of records, too."""
decode_up = link.decode_up


def _put(key: str, value: bytes) -> Put:
    for each in WITHIN:
        value = value.replace(each, each + ADDED + b",")
    return Put(key, value[:-1] + b"," + ADDED + b"}")


def _decode_up(data: bytes | str) -> link.Up:
    document = msgspec.json.decode(data)
    for name in ("mood", "weather"):
        document.pop(name, None)
    return decode_up(msgspec.json.encode(document))


if __name__ == "__main__":
    federator.__version__ = VERSION
    vars(records).update(Put=_put)
    vars(link).update(decode_up=_decode_up)
    from federator.__main__ import main

    main()
