"""Style as a test: what grows without a limit becomes unreadable, and words that mean nothing hide what a thing is.

docs/style.md gives the reasons. Each failure says what to do instead.
"""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.architecture.sources import PACKAGES, modules, of_each, text, tracked, tree

MODULE_SOFT, MODULE_HARD = 500, 800
FUNCTION_SOFT, FUNCTION_HARD = 40, 70
CLASS_SOFT, CLASS_HARD = 350, 500

BANNED_NAMES = {
    "utils": "name the concept that its functions share",
    "util": "name the concept that its functions share",
    "helpers": "put each function beside its only caller, or name what they share",
    "helper": "put it beside its only caller, or name what it does",
    "common": "name what is shared",
    "manager": "name what it does: committer, sweeper, sessions",
    "misc": "name the concept",
}
BANNED_MODULES = {**BANNED_NAMES, "base": "name the contract: ports, or the protocol itself"}
NOTES = re.compile(r"\b(?:FIX" r"ME|TO" r"DO|XX" r"X)\b")


def sizes(path: str) -> Iterator[tuple[str, int, int, int]]:
    """Name, size, soft and hard limit of a module and of every class and function in it."""
    yield path, text(path).count("\n"), MODULE_SOFT, MODULE_HARD
    yield from _sizes_within(tree(path), path)


def _sizes_within(module: ast.Module, path: str) -> Iterator[tuple[str, int, int, int]]:
    for name, node in _definitions(module, path):
        limits = (
            (CLASS_SOFT, CLASS_HARD) if isinstance(node, ast.ClassDef) else (FUNCTION_SOFT, FUNCTION_HARD)
        )
        yield name, _lines(node), *limits


def _definitions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, "Definition"]]:
    """Classes and functions at any depth, each with its dotted place: they are statements, so expressions are not looked through."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(parent, block, ()):
            if isinstance(node, Definition):
                yield f"{prefix}:{node.name}", node
            yield from _definitions(node, f"{prefix}:{node.name}" if isinstance(node, Definition) else prefix)


def _lines(node: "Definition") -> int:
    """Lines of a definition's body, docstrings left out: nobody should save on explanations, nor on named parameters."""
    size = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
    return size - sum(
        _docstring_lines(part) for part in (node, *(each for _, each in _definitions(node, "")))
    )


def _docstring_lines(node: "Definition") -> int:
    match node.body[0]:
        case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=last):
            return (last or first) - first + 1
    return 0


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.filterwarnings("default::UserWarning")
def test_nothing_outgrows_its_limit() -> None:
    """Over the wall is refused. Between the limits, the run's end has a warning and somebody looks: cut it if it has two concepts, leave it if it has one."""
    found = [each for path in modules() for each in sizes(path)]
    over = [
        f"{name} has {size} lines, over the wall of {hard}" for name, size, _, hard in found if size > hard
    ]
    assert not over, "Cut these along their concepts:\n" + "\n".join(over)
    large = [f"{name} has {size} lines, over {soft}" for name, size, soft, _ in found if size > soft]
    if large:
        warnings.warn("Look at these again:\n" + "\n".join(large), stacklevel=1)


@of_each(modules())
def test_names_say_something(path: str) -> None:
    for word in re.split(r"[/._]", path.removesuffix(".py")):
        assert word not in BANNED_MODULES, f"{path}: not {word!r}; {BANNED_MODULES[word]}"
    for node in ast.walk(tree(path)):
        for name in _names_defined(node):
            for word in re.findall(r"[a-z]+|[A-Z][a-z]*", name):
                advice = BANNED_NAMES.get(word.lower())
                assert advice is None, f"{path}:{node.lineno}: {name}; {advice}"  # type: ignore[attr-defined]


def _names_defined(node: ast.AST) -> list[str]:
    if isinstance(node, Definition):
        return [node.name]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return [node.arg] if isinstance(node, ast.arg) else []


@of_each(modules())
def test_module_says_what_it_is_for(path: str) -> None:
    if path.endswith("/__init__.py") and not text(path).strip() and path.startswith("tests/"):
        return
    docstring = ast.get_docstring(tree(path))
    assert docstring, f"{path} has no docstring: say what it is, and why so"
    first = re.split(r"\n\s*\n", docstring, maxsplit=1)[0]
    assert re.search(r"[.?!:][)`\"']*(\s|$)", first), (
        f"{path}: the first sentence of its docstring does not end"
    )


@of_each([path for path in tracked() if path.endswith((".py", ".sh", ".sql", ".toml", ".yaml", ".yml"))])
def test_nothing_is_left_for_later(path: str) -> None:
    found = NOTES.findall(text(path))
    assert not found, f"{path} still says {found[0]}: do it, or open an issue and say what holds today"


def test_no_module_is_dead() -> None:
    """A module that nothing imports or names is either forgotten or not wired in."""
    named = Counter(
        word for path in (*modules(), "pyproject.toml") for word in set(re.findall(r"\w+", text(path)))
    )
    dead = []
    for path in modules(*PACKAGES):
        name = path.removesuffix(".py").rsplit("/", 1)[1]
        by_itself = name in re.findall(r"\w+", text(path))
        if name not in ("__init__", "__main__") and named[name] == by_itself:
            dead.append(path)
    assert not dead, "\n".join(f"{path}: nothing imports it; wire it in or delete it" for path in dead)
