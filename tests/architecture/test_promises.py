"""The page of promises names tests: each must exist, and each promise must have some."""

import ast
import re

from tests.architecture.sources import ROOT, of_each, text

PAGE = "docs/explanation/promises.md"
NAMED = tuple(dict.fromkeys(re.findall(r"`(tests/\S+\.py)::(\w+)`", text(PAGE))))
CODE = re.compile(r"`((?:federator|tests)/[\w/]+(?:\.py)?)`")


@of_each(sorted({path for path, _ in NAMED}))
def test_every_test_that_is_named_exists(path: str) -> None:
    file = ROOT / path
    assert file.exists(), f"{PAGE} names {path}, which does not exist"
    functions = {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    missing = {name for named, name in NAMED if named == path} - functions
    assert not missing, f"{PAGE} names tests that {path} does not have: {sorted(missing)}"


def test_all_thirteen_promises_are_there_each_with_its_place_its_tests_and_its_gaps() -> None:
    page = text(PAGE)
    rows = re.findall(r"^\| (\d+) \|(.+)\|(.+)\|(.+)\|$", page, flags=re.MULTILINE)
    assert [int(row[0]) for row in rows] == list(range(1, 14))
    for number, *cells in rows:
        assert all(cell.strip() for cell in cells), f"promise {number} has an empty cell"
        section = re.search(rf"^### {number} .+?(?=^##)", page, flags=re.MULTILINE | re.DOTALL)
        assert section is not None, f"promise {number} has no section"
        assert "`tests/" in section[0], f"no test holds promise {number}"


def test_the_places_that_are_named_exist() -> None:
    for place in CODE.findall(text(PAGE)):
        assert (ROOT / place).exists(), f"{PAGE} names {place}, which does not exist"
