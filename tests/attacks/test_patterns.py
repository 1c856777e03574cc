"""A pattern that backtracks is a way to stop the dispatcher with one short request, so every pattern of the source is shown to be linear.

A pattern that meets only text of our own is held to it as well: nobody has to know which is which, and each can be written so.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from federator.kernel.errors import Invalid
from federator.kernel.globs import matching
from federator.wire.jobfile import read_job
from tests.architecture import sources
from tests.support.patterns import slow_word

FROM_EACH_PLACE = {"search", "sub", "subn", "split", "findall", "finditer"}
FROM_THE_START = {"match", "fullmatch"}
FLAGS = {"DOTALL", "IGNORECASE", "MULTILINE", "VERBOSE", "ASCII"}
BUILT = {
    "federator/kernel/globs.py": "made by fnmatch, which writes each star so that it is not gone back to",
    "federator/cli/log_lines.py": "written by whoever runs the command, who alone waits for it",
}
"""Where a pattern is put together as the program runs, and why that is no way in."""


class Written(NamedTuple):
    """A pattern as it stands in the source."""

    where: str
    pattern: str
    flags: int
    search: bool


def test_every_pattern_of_the_source_is_linear() -> None:
    slow = {}
    for each in _patterns():
        word = slow_word(each.pattern, each.flags, search=each.search)
        if word is not None:
            slow[each.where] = f"{each.pattern} is read in ever more ways from {word!r} repeated"
    assert slow == {}


def test_the_patterns_are_found() -> None:
    """Names of images are the one that stopped a dispatcher."""
    found = [each.where for each in _patterns()]
    assert len(found) > 60
    assert any("wire/needs.py" in where for where in found)


def test_a_pattern_of_bytes_is_read_as_it_stands() -> None:
    (call,) = (node for node in ast.walk(ast.parse(r're.compile(rb"\w\(")')) if isinstance(node, ast.Call))
    assert list(_written(call, "", {})) == [(r"\w\(", int(re.ASCII), "compile")]


@pytest.mark.parametrize(
    ("pattern", "search", "word"),
    [
        (r"[a-z0-9]+([._/:@-]+[A-Za-z0-9_]+)*(:[0-9]+)?[A-Za-z0-9._/:@-]*", False, "_"),
        (r"(a+)+b", False, "a"),
        (r"(a|a)*b", False, "a"),
        (r"\d*\.?\d+", False, "0"),
        (r"\s+$", True, " "),
        (r"(?:ab)*(?:a[bc])*x", False, "ab"),
    ],
)
def test_a_pattern_that_backtracks_is_seen(pattern: str, search: bool, word: str) -> None:
    seen = slow_word(pattern, search=search)
    assert seen is not None
    # The word found stands for the kind of letters that it has.
    assert len(seen) == len(word)


@pytest.mark.parametrize(
    ("pattern", "search"),
    [(r"(?:a++_?+)*+b", False), (r"\s+", True), (r"\w+=\d+", False), (r"a++a", False)],
)
def test_a_linear_pattern_is_let_through(pattern: str, search: bool) -> None:
    assert slow_word(pattern, search=search) is None


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        (r"(a+)\1", "a reference to a group"),
        (r"(a)?(?(1)b|c)", "a choice by whether a group was read"),
        (r"x(?=(a)\1)", "a reference to a group"),
        (r"(?i:a+)b", "a group with flags of its own"),
    ],
)
def test_a_pattern_that_cannot_be_judged_is_refused_by_name(pattern: str, construct: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(f"{construct} is not counted")) as refused:
        slow_word(pattern)
    assert repr(pattern) in str(refused.value)


def test_the_name_of_an_image_is_refused_however_it_is_made() -> None:
    with pytest.raises(Invalid, match="not the name of an image") as refused:
        read_job({"run": "x", "image": "a" + "_" * 47 + "!"}, now=0.0)
    assert refused.value.field == "$.image"


@pytest.mark.parametrize("pattern", ["/".join(["**"] * 12 + ["x"]), "*a" * 30])
def test_outputs_with_many_stars_are_matched_at_all(pattern: str) -> None:
    """Each star more was tried at every place of the name that the ones before it had left: this did not end."""
    names = ["/".join("a" * 40), "a" * 200 + "!"]
    assert matching(names, [pattern]) == []


def test_a_job_file_cannot_ask_for_the_whole_directory_over_and_over() -> None:
    with pytest.raises(Invalid, match=r"\*\*") as refused:
        read_job({"run": "x", "outputs": ["a/**/**/b/**"]}, now=0.0)
    assert refused.value.field == "$.outputs[0]"


@cache
def _patterns() -> tuple[Written, ...]:
    return tuple(_found())


def _found() -> Iterator[Written]:
    trees = {path: sources.tree(path) for path in sources.modules(*sources.PACKAGES)}
    used = {(path, name, how) for path, tree in trees.items() for name, how in _uses(tree)}
    constants: dict[str, set[str]] = {}
    for line in (line for tree in trees.values() for line in tree.body if isinstance(line, ast.Assign)):
        target, value = line.targets[0], line.value
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            constants.setdefault(target.id, set()).add(value.value)
    for path, tree in trees.items():
        names = {id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Assign)}
        for node in ast.walk(tree):
            for pattern, flags, how in _written(node, path, constants):
                named = names.get(id(node))
                name = named.targets[0].id if named and isinstance(named.targets[0], ast.Name) else ""
                # A public name may be used by anybody.
                ways = {
                    each
                    for at, known, each in used
                    if known == name and (at == path or not name.startswith("_"))
                }
                search = how in FROM_EACH_PLACE or bool(ways & FROM_EACH_PLACE)
                yield Written(f"{path}:{node.lineno}", pattern, flags, search)  # type: ignore[attr-defined]


def _uses(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Which names are asked for which kind of match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in FROM_EACH_PLACE | FROM_THE_START:
            owner = node.value
            if isinstance(owner, ast.Name | ast.Attribute):
                yield owner.id if isinstance(owner, ast.Name) else owner.attr, node.attr


def _written(node: ast.AST, where: str, constants: dict[str, set[str]]) -> Iterator[tuple[str, int, str]]:
    if not isinstance(node, ast.Call):
        return
    if any(word.arg == "pattern" for word in node.keywords) and "Meta" in ast.unparse(node.func):
        (given,) = (word.value for word in node.keywords if word.arg == "pattern")
        yield ast.literal_eval(given), 0, "search"
    if not isinstance(node.func, ast.Attribute) or ast.unparse(node.func.value) != "re":
        return
    if node.func.attr not in FROM_EACH_PLACE | FROM_THE_START | {"compile"}:
        return
    first = node.args[0]
    texts = constants.get(first.id, set()) if isinstance(first, ast.Name) else set()
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        texts = {first.value}
    flags = re.NOFLAG
    if isinstance(first, ast.Constant) and isinstance(first.value, bytes):
        # Bytes are read as a text of ASCII letters is.
        texts, flags = {first.value.decode("latin-1")}, re.ASCII
    if not texts:
        assert where in BUILT, (
            f"{where}:{node.lineno}: write the pattern as one text, so that it can be looked at"
        )
        return
    said = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and each.attr in FLAGS}
    for flag in said:
        flags |= re.RegexFlag[flag]
    for text in texts:
        yield text, int(flags), node.func.attr
