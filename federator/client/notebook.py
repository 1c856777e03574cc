"""Lists of records as a notebook shows them: it asks a value for `_repr_html_`."""

from typing import Any, TypeVar

import msgspec

from federator.wire.html import html_table

R = TypeVar("R")


class Rows(list[R]):
    """A list of records that a notebook shows as a table; a list in all else."""

    def _repr_html_(self) -> str:
        return html_table(self)


def in_notebook(answer: R) -> R:
    """The same answer; a list of records as one that a notebook shows as a table."""
    found: Any = answer
    return Rows(found) if type(found) is list and found and isinstance(found[0], msgspec.Struct) else answer  # type: ignore[return-value]
