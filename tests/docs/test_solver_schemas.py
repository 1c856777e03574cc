"""The JSON Schemas of problem and plan files say what every field means, and hold real files to what they say."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from federator.solving.offline import run
from federator.wire.solver_files import from_problem, write
from tests.architecture.sources import ROOT, text
from tests.bench.solver.instances import Instance, Parameters

RECORDED = ROOT / "tests/contract/wire"
KINDS = ("problem", "plan")


def _schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text(f"docs/reference/solver-{kind}.schema.json"))
    return found


def test_the_page_explains_every_field_and_names_no_type_of_the_code() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.+?) \| .+? \| (.+) \|$", text("docs/reference/solver-files.md"), re.MULTILINE
    )
    assert len(rows) > 300
    assert not [row for row in rows if row[2] == "–" or re.search(r"`[A-Z]\w*`|\w\[", row[1])]


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    """A problem with datasets, links, offers and deadlines, and its plan with a certificate."""
    problem = Instance(Parameters(jobs=24, sites=3, seed=3)).problem()
    plan = run(problem, clock=lambda: 0.0, proven=True)
    return {"problem": json.loads(write(from_problem(problem))), "plan": json.loads(write(plan))}


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_as_their_schema_says(kind: str, written: dict[str, Any]) -> None:
    schema = jsonschema_rs.validator_for(_schema(kind))
    schema.validate(written[kind])
    schema.validate(json.loads(Path(RECORDED / f"solver-{kind}-1.json").read_bytes()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change", [{"format": "other/1"}, {"misspelt": 1}, {"decision": 3}, {"taken_at": "now"}, {"snapshot": 0}]
)
def test_a_broken_file_is_not(kind: str, change: dict[str, Any], written: dict[str, Any]) -> None:
    assert not jsonschema_rs.validator_for(_schema(kind)).is_valid(written[kind] | change)
