"""The page of events: what the timeline of a job, the feed of all events and the alerts can say."""

import ast
import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import msgspec

from federator.model import events as module
from federator.model import lifecycle
from federator.model.plans import ProposalKind
from federator.wire.schema import record_schema
from tools.record_docs import fields, one_line, page, table

CONTROL = Path(__file__).resolve().parent.parent / "federator" / "control"
BESIDE: dict[str, str] = {
    "submit": "It was accepted.",
    "update": "Somebody changed it; the text names the fields.",
    "stopping": "One part of a gang has ended, and the others are told to stop.",
    "checkpoint-lost": "What it saved at its site is gone: it starts over, and may go elsewhere.",
    "approved": "A person approved a rental for it, up to an amount.",
    "series": "What the series that it is a run of did, or could not do.",
}
"""Kinds that are written beside the lifecycle, each by a literal in federator/control."""


def events() -> str:
    """Events of jobs, and alerts: kinds and fields."""
    return page([
        "# Events and alerts",
        (
            "`GET /v1/jobs/{id}/events` answers a job's timeline, `GET /v1/events` follows all jobs; both as server-sent events that resume after `Last-Event-ID`, or as a JSON list with "
            "`?follow=false` (of one job). `federator show JOB` prints the timeline."
        ),
        "## An event",
        _fields(module.Event),
        "## Kinds of events",
        "Those of the [lifecycle of a job](lifecycles.md#job), and some beside it.",
        table(("kind", "what happened"), _kinds()),
        "## Kinds of alerts",
        (
            "An alert is an event of its kind (on the timeline of its job where it has one), a line of the ledger, a log line, the metric `federator_alerts_total`, and what "
            "`alerts.webhook` of the [settings](settings.md) is sent."
        ),
        table(("kind", "what it is about"), _members(module.AlertKind)),
        "## An alert, as the webhook is sent it",
        "A JSON object with these fields and `federation`, the federation's name. Fields that do not apply are left out.",
        _fields(module.Alert),
    ])  # fmt: skip


def _kinds() -> Iterator[tuple[str, str]]:
    """All kinds, once each; of one with several edges the sentence of the first."""
    from federator.control.turns import set_aside

    _check()
    told: dict[str, str] = {}
    for (_, event), edge in lifecycle.JOB.items():
        told.setdefault(event, edge.says)
    for kind, says in _members(ProposalKind):
        told[kind.strip("`")] = f"A rental was proposed. {says}"
    told[set_aside.KIND] = dict(_members(module.AlertKind))[f"`{set_aside.KIND}`"]
    yield from ((f"`{kind}`", says) for kind, says in sorted((BESIDE | told).items()))


def _check() -> None:
    """Refuse a table that does not have exactly the kinds that the code writes beside the lifecycle."""
    source = "\n".join(path.read_text() for path in sorted(CONTROL.rglob("*.py")))
    found = set(re.findall(r'\.event\(\s*[\w.\[\]]+,\s*"([\w-]+)"', source)) | set(
        re.findall(r'Event\([^()]*(?:\([^()]*\)[^()]*)*kind="([\w-]+)"', source)
    )
    if found != set(BESIDE):
        raise SystemExit(
            f"tools/event_docs.py, BESIDE: add {sorted(found - set(BESIDE))}, remove {sorted(set(BESIDE) - found)}"
        )


def _members(kind: type[StrEnum]) -> list[tuple[str, str]]:
    """The members of an enumeration with the docstrings below them."""
    (body,) = (
        node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)
    )
    found = []
    for statement, below in pairwise(body):
        if isinstance(statement, ast.Assign) and isinstance(below, ast.Expr):
            value, says = ast.literal_eval(statement.value), ast.literal_eval(below.value)
            found.append((f"`{value}`", one_line(says)))
    return found


def _fields(record: type[msgspec.Struct]) -> str:
    return fields(
        record_schema(record), record.__name__, lambda _: "see [reasons](reasons.md#kinds-of-reasons)"
    )
