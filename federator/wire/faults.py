"""All that is wrong with a document, and not just what a reader stumbles over first.

Readers raise at the first fault. So the document is read again without what was wrong, until nothing is: no reader has to know of that.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from federator.kernel.errors import FederatorError, Invalid, Permanent
from federator.wire.yamltext import Document

MOST = 20
"""So many faults of one document are told."""
T = TypeVar("T")
ErrorType = TypeVar("ErrorType", bound=FederatorError)
Left = dict[str, list[int]]
"""By the path of a list from which entries were taken out, where those that are left stood."""
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def every_fault(read: Callable[[object], object], value: object) -> list[Permanent]:
    """The faults that `read` finds in a decoded document, in the order in which it does; none: it reads it."""
    faults: list[Permanent] = []
    told: set[str] = set()
    left: Left = {}
    while len(faults) < MOST:
        try:
            read(value)
        except Permanent as fault:
            path = _as_written(fault.field or "$", left)
            if not any(
                _holds(path, each) or _holds(each, path) for each in told
            ):  # else it may only miss what was taken out
                faults.append(type(fault)(fault.message, field=fault.field and path, remedy=fault.remedy))
            while path in told:  # it is gone, and missed there: do without what it was a part of
                path = path[: max(path.rfind("."), path.rfind("["), 0)]
            told.add(path)
            if path in ("", "$"):
                break
            value = _without(value, _steps(path), "$", left)
        else:
            break
    return faults


def _holds(path: str, other: str) -> bool:
    """Whether the one is the other, or holds it."""
    return other == path or other.startswith((f"{path}.", f"{path}["))


def read_whole(read: Callable[[object], T], document: Document, file: object) -> T:
    """What `read` makes of the document of a file. Raises all that is wrong with it, each with file and line in front."""
    found: list[T] = []
    faults = every_fault(lambda value: found.append(read(value)), document.value)
    raise_all([_in_file(file, fault) for fault in in_lines(document, faults)])
    return found[0]


def raise_all(faults: list[Permanent]) -> None:
    """Raise the one fault as it is, several as an ExceptionGroup, none not."""
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise ExceptionGroup(f"{len(faults)} faults", faults)


def in_lines(document: Document, faults: list[Permanent]) -> list[Permanent]:
    """The same errors as they stand in the document, each with its line in front."""
    return [
        with_line(document, fault) for fault in sorted(faults, key=lambda f: line_at(document.lines, f.field))
    ]


def with_line(document: Document, error: ErrorType) -> ErrorType:
    """The same error, with the line in front."""
    line = line_at(document.lines, error.field)
    return type(error)(f"line {line}: {error.message}", field=error.field, remedy=error.remedy)


@contextmanager
def told_in(file: object) -> Iterator[None]:
    """What is wrong inside is told with the name of the file in front, and before the line where that is told."""
    try:
        yield
    except Permanent as error:
        raise _in_file(file, error) from None


def _in_file(file: object, error: Permanent) -> Permanent:
    gap = "," if error.message.startswith("line ") else ":"
    return type(error)(f"{file}{gap} {error.message}", field=error.field, remedy=error.remedy)


def unreadable(file: object, error: Exception, field: str | None) -> Invalid:
    """A file that cannot be opened, or not be read as what it should be."""
    if isinstance(error, UnicodeDecodeError):
        return Invalid(f"{file} is not text", field=field, remedy="write it in UTF-8")
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return Invalid(f"{file} cannot be read: {why}", field=field)


def line_at(lines: Mapping[str, int], path: str | None) -> int:
    """The line of the longest known path at or above `path`."""
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines[path or "$"]


def _steps(path: str) -> list[str | int]:
    return [key or int(index) for key, index in _STEP.findall(path)]


def _as_written(path: str, left: Left) -> str:
    """The path of what stood there before entries of lists were taken out."""
    at = "$"
    for step in _steps(path):
        if isinstance(step, int):
            there = left.get(at, ())
            at += f"[{there[step] if step < len(there) else step}]"
        else:
            at += f".{step}"
    return at if left else path


def _without(value: object, steps: list[str | int], at: str, left: Left) -> object:
    """A copy without what the steps lead to from `at`, as far as they lead."""
    match value, steps:
        case dict(), [str(key), *more] if key in value:
            if more and _has(value[key], more[0]):
                return value | {key: _without(value[key], more, f"{at}.{key}", left)}
            return {name: each for name, each in value.items() if name != key}
        case list(), [int(index), *more]:
            there = left.setdefault(at, list(range(len(value))))
            if index not in there:
                return value
            place = there.index(index)
            if more and _has(value[place], more[0]):
                inner = _without(value[place], more, f"{at}[{index}]", left)
                return [*value[:place], inner, *value[place + 1 :]]
            del there[place]
            return [*value[:place], *value[place + 1 :]]
    return value


def _has(value: object, step: str | int) -> bool:
    """Whether the step leads somewhere."""
    return isinstance(value, list) if isinstance(step, int) else isinstance(value, dict) and step in value
