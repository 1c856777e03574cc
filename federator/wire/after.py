"""`after` of a job file: which jobs it must follow, and what each of them must come to."""

from federator.kernel.errors import Invalid
from federator.model.jobs import Follows
from federator.wire import fields

SLURM = {"afterok": "ok", "afternotok": "failed", "afterany": "any", "aftercorr": "each"}


def read_after(value: object, path: str) -> tuple[tuple[str, ...], tuple[Follows, ...]]:
    """Names or ids, and what each must come to: none where all are to succeed. Raises `Invalid`."""
    if not isinstance(value, dict):
        return fields.words(value, path, fields.name_or_id), ()
    given = fields.mapping(value, path)
    fields.known_only(given, path, tuple(Follows), SLURM)
    if not given:
        raise Invalid("is empty", field=path, remedy="write for example 'after: {any: preprocess}'")
    pairs = [
        (name, Follows(how))
        for how, names in given.items()
        for name in fields.words(names, f"{path}.{how}", fields.name_or_id)
    ]
    names = tuple(name for name, _ in pairs)
    hows = tuple(how for _, how in pairs)
    return names, () if set(hows) <= {Follows.OK} else hows
