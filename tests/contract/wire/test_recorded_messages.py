"""Peers one version apart: what an older one said is understood, and what is said now is nothing that it would refuse.

`link-v1.jsonl` and `join-v1.jsonl` hold one of every message as the first version with this protocol encoded it, with every field set. They are never
written anew: a message that they do not fit needs another `PROTOCOL`, and recordings of its own beside these. Fields that were added since, within
the protocol, are recorded in further files, one for each occasion, in the messages that have them:
`link-v1-gangs.jsonl`, `link-v1-machines.jsonl`, `link-v1-tunnels.jsonl`, `link-v1-samples.jsonl`, `link-v1-local-jobs.jsonl`,
`link-v1-thin-links.jsonl`.
"""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from federator.wire import link

FOLDER = Path(__file__).parent
LINES = (FOLDER / "link-v1.jsonl").read_bytes().splitlines()
ADDED = [
    line
    for occasion in ("gangs", "machines", "tunnels", "samples", "local-jobs", "thin-links")
    for line in (FOLDER / f"link-v1-{occasion}.jsonl").read_bytes().splitlines()
]
JOINS = dict(
    zip(
        [link.JoinRequest, link.JoinAnswer], (FOLDER / "join-v1.jsonl").read_bytes().splitlines(), strict=True
    )
)
UP = {kind.__struct_config__.tag: kind for kind in get_args(link.Up)}
DOWN = {kind.__struct_config__.tag: kind for kind in get_args(link.Down)}


def tag_of(line: bytes) -> str:
    tag: str = msgspec.json.decode(line)["type"]
    return tag


def decode(line: bytes) -> Any:
    return link.decode_up(line) if tag_of(line) in UP else link.decode_down(line)


def keys(value: Any, path: str = "") -> set[str]:
    """The paths of all fields in a document."""
    if isinstance(value, dict):
        return {path, *(key for name, each in value.items() for key in keys(each, f"{path}.{name}"))}
    if isinstance(value, list):
        return {path, *(key for each in value for key in keys(each, f"{path}[]"))}
    return {path}


def test_every_message_is_recorded() -> None:
    assert {tag_of(line) for line in (*LINES, *ADDED)} == {*UP, *DOWN}
    assert len({tag_of(line) for line in LINES}) == len(LINES)


@pytest.mark.parametrize("line", [*LINES, *ADDED], ids=tag_of)
def test_what_was_recorded_is_read_whole(line: bytes) -> None:
    assert msgspec.json.decode(link.encode(decode(line))) == msgspec.json.decode(line)


@pytest.mark.parametrize("line", [*LINES, *ADDED], ids=tag_of)
def test_what_is_said_now_uses_no_field_that_the_recorded_version_would_refuse(line: bytes) -> None:
    """A new field has a default, and is not said while it has it."""
    said = msgspec.json.decode(link.encode(decode(line)))
    assert keys(said) <= keys(msgspec.json.decode(line))


@pytest.mark.parametrize("line", LINES, ids=tag_of)
def test_each_message_without_its_optional_fields_is_read_too(line: bytes) -> None:
    """As a still older peer would send it: whatever has a default may be missing."""
    document = msgspec.json.decode(line)
    kind = {**UP, **DOWN}[document["type"]]
    for field in msgspec.structs.fields(kind):
        optional = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
        if optional and field.encode_name in document:
            decode(msgspec.json.encode({k: v for k, v in document.items() if k != field.encode_name}))


@pytest.mark.parametrize("kind", JOINS, ids=lambda kind: kind.__name__)
def test_joining_is_as_it_was(kind: Any) -> None:
    line = JOINS[kind]
    assert msgspec.to_builtins(msgspec.json.decode(line, type=kind)) == msgspec.json.decode(line)
    assert keys(msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(line, type=kind)))) <= keys(msgspec.json.decode(line))  # fmt: skip


def test_the_recorded_protocol_is_the_one_spoken() -> None:
    """Should this fail, record the new protocol's messages beside the old ones, and keep reading both for one version."""
    hello = next(decode(line) for line in LINES if tag_of(line) == "hello")
    assert hello.protocol == link.PROTOCOL


def test_digests_of_desired_sets_are_computed_as_they_were() -> None:
    """Two peers that disagree on this would send whole sets for ever."""
    desired = next(decode(line) for line in LINES if tag_of(line) == "desired")
    assert link.desired_digest(desired.entries) == desired.digest
