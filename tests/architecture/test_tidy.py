"""Style as a test: what grows without a limit becomes unreadable, and words that mean nothing hide what a thing is.

docs/style.md gives the reasons. Each failure says what to do instead.
"""

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import PACKAGES, modules, of_each, text, tracked, tree

MODULE_SOFT, MODULE_HARD = 500, 800
FUNCTION_SOFT, FUNCTION_HARD = 40, 70
CLASS_SOFT, CLASS_HARD = 350, 500

# What is over a soft limit, each with the size it may not exceed. The list may only shrink: an entry that is no longer
# needed fails too.
EXCEPTIONS: dict[str, int] = {
    "federator/assembly.py:assemble": 63,
    "tests/contract/stores/test_store_contract.py": 528,
}

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


def _sizes_within(parent: ast.AST, prefix: str) -> Iterator[tuple[str, int, int, int]]:
    for node in ast.iter_child_nodes(parent):
        name = f"{prefix}:{node.name}" if isinstance(node, Named) else prefix
        if isinstance(node, ast.ClassDef):
            yield name, _lines(node), CLASS_SOFT, CLASS_HARD
        elif isinstance(node, Function):
            yield name, _lines(node), FUNCTION_SOFT, FUNCTION_HARD
        yield from _sizes_within(node, name)


def _lines(node: "ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef") -> int:
    """Lines of a definition's body, docstrings left out: nobody should save on explanations, nor on named parameters."""
    size = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
    for part in ast.walk(node):
        if isinstance(part, Named) and ast.get_docstring(part) is not None:
            docstring = part.body[0]
            size -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return size


Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = ast.ClassDef | Function


@of_each(modules())
def test_nothing_outgrows_its_limit(path: str) -> None:
    for name, size, soft, hard in sizes(path):
        assert size <= hard, f"{name} has {size} lines, over the wall of {hard}: cut it along its concepts"
        allowed = EXCEPTIONS.get(name, soft)
        assert size <= allowed, f"{name} has {size} lines, over {allowed}: take a step of it out and name it"


def test_exceptions_only_shrink() -> None:
    present = {name: (size, soft) for path in modules() for name, size, soft, _ in sizes(path)}
    for name, allowed in EXCEPTIONS.items():
        assert name in present, f"{name} is gone: remove it from EXCEPTIONS"
        size, soft = present[name]
        assert soft < size <= allowed, f"{name} is within its limit of {soft} now: remove it from EXCEPTIONS"


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
    if isinstance(node, Named):
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
    everything = {path: text(path) for path in (*modules(), "pyproject.toml")}
    for path in modules(*PACKAGES):
        name = path.removesuffix(".py").rsplit("/", 1)[1]
        if name in ("__init__", "__main__"):
            continue
        used = any(re.search(rf"\b{name}\b", other) for at, other in everything.items() if at != path)
        assert used, f"{path}: nothing imports it; wire it in or delete it"
