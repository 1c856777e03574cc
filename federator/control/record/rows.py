"""Rows of the store that are no part of the model: what was submitted under a client id, and what a job has left."""

import msgspec


class ClientKey(msgspec.Struct, frozen=True, gc=False):
    """What a client id was first used for: the jobs it made, and the hash of the body."""

    owner: str
    client_id: str
    body_hash: str
    jobs: tuple[str, ...]
    name: str
    at: float
    tasks: int = 0
    """Of an array whose ids follow from its own: how many tasks it has; then `jobs` is the first of them alone."""
    array: str = ""
    """The id of that array."""
    pipeline: str = ""
    """Of a pipeline, its id; then `jobs` has the id of each step's job or array."""


class OutputPart(msgspec.Struct, frozen=True):
    """What one member collected: the hash and size of a gzipped tar."""

    member: str
    digest: str
    size_bytes: int


class Outputs(msgspec.Struct, frozen=True):
    """A job's collected outputs, one part per member: those of its success, else those of a newer placement before those of an older one."""

    job: str
    placement: str
    epoch: int
    parts: tuple[OutputPart, ...]
