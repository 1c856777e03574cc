"""What the architecture tests look at: the tracked files, and the syntax trees of those that are Python."""

import ast
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "federator",
    "agents/federator_agent",
    "providers/federator_providers",
    "policies/federator_policies",
)


@cache
def tracked() -> tuple[str, ...]:
    """Paths of all files under version control that are in the working tree, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return tuple(path for path in listing.split("\0") if path and (ROOT / path).is_file())


def modules(*folders: str) -> tuple[str, ...]:
    """Paths of the tracked Python files, of all or of those under `folders`."""
    return tuple(
        path
        for path in tracked()
        if path.endswith(".py")
        and (not folders or path.startswith(tuple(f"{folder}/" for folder in folders)))
    )


def text(path: str) -> str:
    """A tracked file's text."""
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(path: str) -> ast.Module:
    """A Python file's syntax tree."""
    return ast.parse(text(path), path)


def of_each(paths: Sequence[str]) -> Callable[[Callable[[str], None]], Callable[[], None]]:
    """One test that asks a rule of every path, and names all that break it: thousands of tests of one rule each cost more to collect than to run."""

    def of(rule: Callable[[str], None]) -> Callable[[], None]:
        def asked() -> None:
            broken = []
            for path in paths:
                try:
                    rule(path)
                except AssertionError as error:
                    broken.append(str(error))
            assert paths, "no path is asked"
            assert not broken, "\n".join(broken)

        asked.__name__, asked.__doc__, asked.__module__ = rule.__name__, rule.__doc__, rule.__module__
        return asked

    return of
