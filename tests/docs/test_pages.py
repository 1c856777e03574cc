"""What pages say in code or in tables is what the code says."""

import re
import tomllib

import pytest

from federator.wire.jobfile import read_job
from federator.wire.yamltext import read_document
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


def test_every_package_has_its_place_in_the_tree_on_the_page() -> None:
    tree = text("docs/architecture.md").split("## The tree")[1].split("## ")[0]
    packages = {path.parent.name for path in (ROOT / "federator").glob("*/__init__.py")}
    assert packages
    for package in packages:
        assert re.search(rf"\b{package}\b", tree), f"docs/architecture.md does not say what {package} is"


@pytest.mark.parametrize("page", ["docs/howto/submit-jobs.md"])
def test_recipes_of_job_files_are_accepted(page: str) -> None:
    """Each block is a part of a job file; all are tried with the least that makes a job of them."""
    blocks = re.findall(r"```yaml\n(.*?)```", text(page), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        fields = read_document(block).value
        assert isinstance(fields, dict)
        if "workdir" in fields:  # by the time the dispatcher reads it, the client has uploaded the folder
            fields["workdir"] = f"sha256:{'0' * 64}"
        read_job({"run": "true", **fields}, now=0.0)


def test_the_python_example_is_python() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", text("docs/howto/submit-jobs.md"), flags=re.DOTALL)
    compile(block, "submit-jobs.md", "exec")
