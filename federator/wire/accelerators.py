"""How GPUs are asked for: `4`, `A100:4`, `A100|H100:80GB:4`, a part of one as `0.5` or `A100:0.5`, or written out as a mapping.

The text is the form that users of SkyPilot and dstack know. Its parts may come in any order, because each can be told from
the others: a count is a number, a memory has a unit, anything else names models.
"""

import re
from collections.abc import Collection
from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from federator.kernel.errors import Invalid, NotSupported
from federator.model.jobs import WHOLE_MILLI, Accelerators
from federator.wire import fields
from federator.wire.decoding import decode
from federator.wire.mig import mig, nearest

MAX_GPUS_PER_NODE = 128
MAX_WIDTHS = 16
MAX_GPU_MEMORY_MIB = 4 * 2**20
_COUNT = re.compile(r"\d{1,9}")
_FRACTION = re.compile(r"\d*\.\d+")
_RANGE = re.compile(r"\d*(?:\.\d*)?\.\.\d*(?:\.\d*)?")
_WHOLE_RANGE = re.compile(r"\d{1,9}\.\.\d{1,9}")
_SQUEEZED = re.compile(r"0?\.\d{1,3}\.\.(0?\.\d{1,3}|1|1\.0)")
TENTH_MILLI = 100
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_ROUNDING = 1e-9
_MEMORY = re.compile(r"\d+(?:\.\d+)?\s*[KMGT]i?B?")
_MODEL = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_TIMES = re.compile(
    r"(?P<first>\d{1,3})\s*[x×*]\s*(?P<after>[A-Za-z][\w.-]*)?|(?P<before>(?=[^x×*]*\d)[A-Za-z][\w.-]*?)\s*[x×*]\s*(?P<last>\d{1,3})"
)
"""How many times a model, as people say it; a model of its own, such as RTX4090, has no digit before its x."""
_PROFILE = re.compile(r"(?<![0-9A-Za-z])[0-9]g\.[0-9]{1,4}gb", re.IGNORECASE)
_REMEDY = "write for example 4, A100:4, A100:80GB:4, A100|H100:4 or A100:0.5"
Gpus = Annotated[
    object,
    fields.written(
        lambda value, _: value, "4", "A100:4", "A100|H100:80GB:4", "0.5", type=["number", "string", "object"]
    ),
]
"""As it is written; `read_widths` reads it."""


def read_model(value: object, path: str) -> str:
    """A GPU model, in upper case: sites, offers, policies and users write `a100` and `A100` for the same thing."""
    if not isinstance(value, str) or not _MODEL.fullmatch(value):
        raise Invalid(f"{fields.shown(value)} is not the name of a GPU model", field=path, remedy=_REMEDY)
    return value.upper()


Model = Annotated[str, fields.written(read_model, "A100", pattern=_MODEL.pattern)]


class _Gpus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """GPUs written out."""

    elsewhere: ClassVar = {"model": "models", "name": "models", "vram": "memory"}

    count: float = 1.0
    models: Annotated[tuple[Model, ...], fields.alone()] = ()
    memory: Annotated[int, fields.size(high_mib=MAX_GPU_MEMORY_MIB)] = 0


def read_accelerators(value: object, path: str) -> Accelerators:
    """GPUs per node. Raises `Invalid`, or `NotSupported` for ranges; `read_widths` reads those of whole GPUs."""
    if isinstance(value, float) and not value.is_integer():
        return _part_of_one(value, (), 0, path)
    if isinstance(value, int | float):
        return Accelerators(count=_count(value, path))
    if isinstance(value, dict):
        return _from_mapping(value, path)
    if not isinstance(value, str):
        raise Invalid("is neither a number nor a text", field=path, remedy=_REMEDY)
    text = fields.text(value, path, limit=500)
    _no_profile(text, path)
    return _from_text(text, path)


def read_widths(value: object, path: str, among: Collection[int] | None = None) -> tuple[Accelerators, ...]:
    """GPUs per node; of a range such as `A100:1..8` one entry for each number, rising, and of `0.4..1` one for each tenth.

    Of a range of whole GPUs only the numbers `among` those given, where some are: maybe none. Raises `Invalid`.
    """
    found = value.get("count") if isinstance(value, dict) else value
    text = found if isinstance(found, str) else ""
    ranges = [part for part in text.split(":") if _WHOLE_RANGE.fullmatch(part.strip())]
    squeezed = [part for part in text.split(":") if _SQUEEZED.fullmatch(part.strip())]
    if isinstance(value, dict) and ":" in text and (ranges or squeezed):
        raise Invalid(
            f"{text[:80]!r} is more than a count",
            field=f"{path}.count",
            remedy=f"write count: {(ranges or squeezed)[0].strip()}, and models and memory beside it",
        )
    if len(squeezed) == 1 and not ranges:
        return _squeezed(value, text, squeezed[0], path)
    if not ranges:
        _no_other_range(text, path)
    if len(ranges) != 1:
        return (read_accelerators(value, path),)
    low, high = (_count(int(end), path) for end in ranges[0].strip().split(".."))
    if not 1 <= low < high:
        raise Invalid(f"{ranges[0][:80]!r} is not a range", field=path, remedy="write for example 1..8")
    if among is None:
        chosen = spread(low, high)
    else:
        chosen = tuple(sorted(count for count in among if low <= count <= high))
    counts = [":".join(str(count) if p == ranges[0] else p for p in text.split(":")) for count in chosen]
    if isinstance(value, dict):
        return tuple(read_accelerators(value | {"count": int(count)}, path) for count in counts)
    return tuple(read_accelerators(count, path) for count in counts)


def _no_other_range(text: str, path: str) -> None:
    """A range that mixes whole GPUs with parts of one is neither."""
    for part in (part.strip() for part in text.split(":")):
        if _RANGE.fullmatch(part):
            raise Invalid(
                f"{part[:80]!r} is neither a range of whole GPUs nor one of parts of a GPU",
                field=path,
                remedy="write for example 1..8, or 0.4..1 for a part that may be squeezed",
            )


def _squeezed(value: object, text: str, wanted: str, path: str) -> tuple[Accelerators, ...]:
    """The parts of one GPU between two ends, a tenth apart; all of it may be the last."""
    low, high = (round(float(end) * WHOLE_MILLI) for end in wanted.strip().split(".."))
    if not 0 < low < high <= WHOLE_MILLI:
        raise Invalid(
            f"{wanted[:80]!r} is not a range of parts of one GPU",
            field=path,
            remedy="write for example 0.4..1",
        )
    one: object = ":".join("1" if part == wanted else part for part in text.split(":"))
    whole = read_accelerators(value | {"count": 1} if isinstance(value, dict) else one, path)
    parts = sorted({low, high, *range(TENTH_MILLI, high, TENTH_MILLI)})
    return tuple(replace(whole, share_milli=milli) for milli in parts if milli >= low)


def spread(low: int, high: int, *also: int) -> tuple[int, ...]:
    """All counts from low to high; of more than sixteen, powers of two, the ends, and `also`."""
    if high - low < MAX_WIDTHS:
        return tuple(range(low, high + 1))
    powers = (1 << power for power in range(high.bit_length()))
    return tuple(sorted({low, high, *also, *(count for count in powers if low <= count <= high)}))


def _from_text(text: str, path: str) -> Accelerators:
    count: float | None = None
    models: tuple[str, ...] | None = None
    memory_mib: int | None = None
    for part in (part.strip() for part in text.split(":")):
        if _RANGE.fullmatch(part):
            raise NotSupported(
                "ranges of GPUs are not supported here",
                field=path,
                remedy="write one number",
            )
        if _FRACTION.fullmatch(part) and count is None:
            count = float(part)
        elif _COUNT.fullmatch(part) and count is None:
            count = _count(int(part), path)
        elif _MEMORY.fullmatch(part) and memory_mib is None:
            memory_mib = fields.size_mib(part, path, high_mib=MAX_GPU_MEMORY_MIB)
        elif not _NUMBER.fullmatch(part) and not _MEMORY.fullmatch(part) and models is None:
            _no_count(part, text, path)
            models = tuple(read_model(word.strip(), path) for word in part.split("|"))
        else:
            raise Invalid(f"{part[:80]!r} in {text[:80]!r} cannot be read", field=path, remedy=_REMEDY)
    return _accelerators(1 if count is None else count, models or (), memory_mib or 0, path)


def _no_profile(text: str, path: str) -> None:
    """A MIG profile, such as `A100:1g.10gb`: a job asks for the part of a GPU that such an instance is, or the next larger one that there is."""
    profile = _PROFILE.search(text)
    if profile is None:
        return
    beside = (part.strip(" -") for part in text.replace(profile[0], "").split(":"))
    named = [part for part in beside if part and not _NUMBER.fullmatch(part)]
    memory_mib = next(
        (
            fields.size_mib(part, path, high_mib=MAX_GPU_MEMORY_MIB)
            for part in named
            if _MEMORY.fullmatch(part)
        ),
        0,
    )
    near = nearest(profile[0])
    fits = mig(near, next(iter(named), ""), memory_mib)
    assert fits is not None
    kind = "a MIG profile" if near == profile[0] else "no MIG profile that a GPU has"
    raise Invalid(
        f"{profile[0]!r} is {kind}; a job asks for the part of a GPU that an instance is",
        field=path,
        remedy=f"write {':'.join((*named, f'{fits.milli / WHOLE_MILLI:g}'))}",
    )


def _no_count(part: str, text: str, path: str) -> None:
    """What is read as a model and was meant as a count: `4xA100`, `A100x4`, `host_sets`."""
    times = _TIMES.fullmatch(part)
    if times is not None:
        count, model = times["first"] or times["last"], times["after"] or times["before"]
        raise Invalid(
            f"{part[:80]!r} is not the name of a GPU model",
            field=path,
            remedy=f"did you mean {model}:{count}?" if model else f"did you mean {count}?",
        )
    if part == text.strip() and not any(letter.isdigit() for letter in part) and "|" not in part:
        raise Invalid(
            f"{part[:80]!r} is neither a number of GPUs nor the name of a model that has one in it",
            field=path,
            remedy=f"{_REMEDY}; {part[:40]}:1 if it is a model",
        )


def _from_mapping(value: object, path: str) -> Accelerators:
    given = decode(value, _Gpus, path)
    _no_profile(":".join(given.models), f"{path}.models")
    count = _count(given.count, f"{path}.count") if given.count.is_integer() else given.count
    return _accelerators(count, given.models, given.memory, path)


def _accelerators(count: float, models: tuple[str, ...], memory_mib: int, path: str) -> Accelerators:
    models = tuple(dict.fromkeys(models))
    if not float(count).is_integer():
        return _part_of_one(count, models, memory_mib, path)
    if not count and (models or memory_mib):
        raise Invalid(
            "names a model or a memory but asks for 0 GPUs",
            field=path,
            remedy="write a count from 1, or just 0",
        )
    return Accelerators(count=int(count), models=models, memory_mib=memory_mib)


def _part_of_one(gpus: float, models: tuple[str, ...], memory_mib: int, path: str) -> Accelerators:
    """Half a GPU, on one that its site shares; to the thousandth."""
    if not 0 < gpus < 1:
        raise Invalid(
            f"asks for {gpus:g} GPUs: a node has whole ones, or a part of one",
            field=path,
            remedy="write a whole number, or a part such as 0.5",
        )
    milli = round(gpus * WHOLE_MILLI)
    if abs(gpus * WHOLE_MILLI - milli) > _ROUNDING:
        raise Invalid(
            f"{gpus:g} is not in thousandths of a GPU", field=path, remedy="write for example 0.125"
        )
    return Accelerators(count=1, models=models, memory_mib=memory_mib, share_milli=milli)


def _count(value: object, path: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return fields.whole(value, path, low=0, high=MAX_GPUS_PER_NODE)
