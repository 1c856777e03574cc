"""What pages say in code or in tables is what the code says."""

import re
import tomllib

import pytest

from federator.wire.jobfile import read_job
from federator.wire.servicefile import read_service
from federator.wire.steps import has_steps, read_steps
from federator.wire.yamltext import read_document, read_documents
from tests.architecture.sources import ROOT, text


def _layers(contract: str) -> list[set[str]]:
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["id"] == contract]
    return [_names(line) for line in layers]


def _names(line: str) -> set[str]:
    """The modules of one line of a ladder, without the optional ones in brackets and without `federator.`."""
    plain = re.sub(r"\([^)]*\)", "", line).split("  ")[0]
    return {name.strip().removeprefix("federator.") for name in plain.split("|") if name.strip()}


def test_the_ladder_on_the_page_is_the_ladder_that_is_checked() -> None:
    page = text("docs/architecture.md")
    ladder = page.split("## Who may import whom")[1].split("```")[1].strip().splitlines()
    shown = [_names(line) for line in ladder]
    plugins = {"federator_agent", "federator_providers", "federator_policies"}
    assert plugins in shown
    assert [line for line in shown if line != plugins] == _layers("ladder")


@pytest.mark.parametrize(("package", "column"), [("planning", 0), ("control", 1)])
def test_the_ladders_inside_are_those_that_are_checked(package: str, column: int) -> None:
    page = text("docs/architecture.md").split("## Who may import whom")[1].split("```")[3].strip("\n")
    cut = page.splitlines()[0].index("control:")
    halves = [(line[:cut], line[cut:])[column].removeprefix(f"{package}:") for line in page.splitlines()]
    assert [_names(half.strip()) for half in halves if half.strip()] == _layers(package)


def test_every_package_has_its_place_in_the_tree_on_the_page() -> None:
    tree = text("docs/architecture.md").split("## The tree")[1].split("## ")[0]
    packages = {path.parent.name for path in (ROOT / "federator").glob("*/__init__.py")}
    assert packages
    for package in packages:
        assert re.search(rf"\b{package}\b", tree), f"docs/architecture.md does not say what {package} is"


PAGES = ("README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))))

OF_JOBS = frozenset(
    {"run", "command", "nodes", "resources", "scaling", "estimate", "checkpoint", "array", "image"}
)
"""Any of them makes YAML on a page a job file, or a part of one; no other file has them at the top."""


def _job_blocks(page: str) -> list[dict[str, object]]:
    """Job files on a page, and parts of them, with the least added that makes a job of each; typo.yaml is there to be refused."""
    found = []
    for block in re.findall(r"```yaml(?! typo)[^\n]*\n(.*?)```", text(page), flags=re.DOTALL):
        for document in read_documents(block):
            fields = document.value
            if not isinstance(fields, dict) or not fields.keys() & OF_JOBS:
                continue
            if "workdir" in fields:  # by the time the dispatcher reads it, the client has uploaded the folder
                fields["workdir"] = f"sha256:{'0' * 64}"
            found.append(fields if {"command", "steps"} & fields.keys() else {"run": "true", **fields})
    return found


@pytest.mark.parametrize("page", PAGES)
def test_job_files_on_pages_are_accepted(page: str) -> None:
    for fields in _job_blocks(page):
        if "kind" in fields:
            read_service(fields, now=0.0)
        else:
            read = read_steps if has_steps(fields) else read_job
            read(fields, now=0.0)


def test_the_pages_of_recipes_have_them() -> None:
    assert len(_job_blocks("docs/howto/submit-jobs.md")) >= 7
    assert len(_job_blocks("docs/howto/several-forms.md")) >= 3


def test_the_python_example_is_python() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", text("docs/howto/submit-jobs.md"), flags=re.DOTALL)
    compile(block, "submit-jobs.md", "exec")


@pytest.mark.parametrize(
    ("start", "says"), [("`gpus: 0.5` asks for", 3), ("`placement: {together: host}` has", 2)]
)
def test_fields_in_sentences_about_parts_and_nodes_together_are_accepted(start: str, says: int) -> None:
    """They stand in a line, whole (`together: rack`) or as the value alone (`"0.4..1"`)."""
    (line,) = [each for each in text("docs/howto/submit-jobs.md").splitlines() if each.startswith(start)]
    tried = 0
    for written in re.findall(r"`([^`]+)`", line):
        if written.startswith("placement:"):
            fields = read_document(written).value
        elif written.startswith("together:"):
            fields = {"placement": read_document(written).value}
        elif written.startswith("gpus:"):
            fields = {"resources": read_document(written).value}
        elif written.startswith('"'):
            fields = {"resources": {"gpus": read_document(written).value}}
        else:
            continue
        assert isinstance(fields, dict)
        read_job({"run": "true", "nodes": 2, **fields}, now=0.0)
        tried += 1
    assert tried >= says


@pytest.mark.parametrize("page", PAGES)
def test_rows_of_tables_have_as_many_cells_as_the_head(page: str) -> None:
    without_code = re.sub(r"```.*?```", "", text(page), flags=re.DOTALL)
    for table in re.findall(r"(?m)(?:^\|.*\n)+", without_code):
        rows = [len(re.split(r"(?<!\\)\|", row.strip())) for row in table.splitlines()]
        assert len(set(rows)) == 1, (page, table.splitlines()[0])
