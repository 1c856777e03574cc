"""Packages of many modules say where things are: each module has its place on the map in the package's docstring, so that a newcomer need not open sixty files."""

import ast
import re

import pytest

from tests.architecture.sources import ROOT

MAPPED = (
    "federator/control",
    "federator/planning",
    *(
        path.parent.relative_to(ROOT).as_posix()
        for package in ("control", "planning")
        for path in sorted((ROOT / "federator" / package).glob("*/__init__.py"))
        if path.parent.name
        not in ("checks", "kernels")  # as large as a page, and their docstrings say what they promise
    ),
)


@pytest.mark.parametrize("package", MAPPED)
def test_every_module_is_on_the_map(package: str) -> None:
    folder = ROOT / package
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"`(\w+)`", said))
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert there - named == set(), f"put these where they belong in the docstring of {package}/__init__.py"
    assert named - there == set(), f"{package}/__init__.py names what is not there"
