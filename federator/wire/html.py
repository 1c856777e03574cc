"""Records as tables of HTML, for notebooks."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

import msgspec

MOST_ROWS = 200
"""A longer table is cut, and says so."""


def html_table(records: Sequence[object]) -> str:
    """Records as a table of those fields that say something, times in UTC."""
    shown = [_fields(each) for each in records[:MOST_ROWS]]
    names = list(
        dict.fromkeys(name for fields in shown for name, value in fields.items() if value not in _NOTHING)
    )
    head = "".join(f"<th>{escape(name.removesuffix('_at'))}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(name, fields.get(name))}</td>' for name in names)}</tr>"
        for fields in shown
    )
    cut = f"<p>{len(shown)} of {len(records)} rows</p>" if len(records) > len(shown) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{cut}"


_NOTHING: tuple[object, ...] = (None, "", (), [], {})


def _fields(record: object) -> dict[str, object]:
    return msgspec.structs.asdict(record) if isinstance(record, msgspec.Struct) else {"value": record}


def _cell(name: str, value: object) -> str:
    if value in _NOTHING:
        return ""
    if name.endswith("_at") and isinstance(value, float | int):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, str | int | float):
        return escape(str(value))
    return escape(msgspec.json.encode(value).decode())
