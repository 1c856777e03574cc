"""`federator-agent` as one of another version would speak: `python -m tests.support.other_version older|newer|bold serve …`.

older: it says no field that the recorded first version did not have, and takes none. newer: its Hello has a field more, as long as the dispatcher takes
it. bold: its reports have one, whatever the dispatcher says.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

import tests
from federator.wire.link import Down, Hello, Report, Up, decode_down, encode
from federator_agent import link
from federator_agent.__main__ import main

RECORDED = Path(tests.__path__[0]) / "contract" / "wire" / "link-v1.jsonl"
KNOWN = {
    document["type"]: document for document in map(msgspec.json.decode, RECORDED.read_bytes().splitlines())
}


def _cut(said: Any, known: Any) -> Any:
    """What is said, without what the recorded version had no word for."""
    if isinstance(said, dict) and isinstance(known, dict):
        return {name: _cut(each, known[name]) for name, each in said.items() if name in known}
    if isinstance(said, list) and isinstance(known, list) and known:
        return [_cut(each, known[0]) for each in said]
    return said


def _older_encode(message: Up | Down) -> bytes:
    document = msgspec.json.decode(encode(message))
    return msgspec.json.encode(_cut(document, KNOWN[document["type"]]))


def _older_decode(data: bytes | str) -> Down:
    document = msgspec.json.decode(data)
    if _cut(document, KNOWN[document["type"]]) != document:
        raise msgspec.ValidationError(f"an older agent does not know all of {document}")
    return decode_down(data)


def _newer_encode(message: Up | Down) -> bytes:
    data = encode(message)
    return data[:-1] + b',"mood":"good"}' if isinstance(message, Hello) and message.instance else data


def _bold_encode(message: Up | Down) -> bytes:
    data = encode(message)
    return data[:-1] + b',"weather":"fine"}' if isinstance(message, Report) else data


if __name__ == "__main__":
    words = {"older": _older_encode, "newer": _newer_encode, "bold": _bold_encode}[sys.argv[1]]
    vars(link).update(__version__=f"0.0.{sys.argv[1]}", encode=words)
    if sys.argv[1] == "older":
        vars(link).update(decode_down=_older_decode)
    sys.exit(main(sys.argv[2:]))
