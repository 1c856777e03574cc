"""Patterns of outputs mean the same everywhere: what Python's `glob` finds on a disk, and all that lies below."""

import glob
from pathlib import Path

import pytest

from federator.kernel.globs import matching

FILES = [
    "a.txt",
    "b.log",
    "out/a.txt",
    "out/deep/b.txt",
    "out/deep/.hidden",
    "x[1].txt",
    "out.txt",
    "a+b.txt",
]


def found_on_disk(work: Path, pattern: str) -> list[str]:
    """The files that `glob` finds, and those in the folders that it finds."""
    found = set()
    for name in glob.iglob(pattern, root_dir=work, recursive=True, include_hidden=True):  # noqa: PTH207 - Path.glob lacks files for `a/**`
        path = work / name
        below = path.rglob("*") if path.is_dir() else [path]
        found |= {str(file.relative_to(work)) for file in below if file.is_file()}
    return sorted(found)


@pytest.mark.parametrize(
    "pattern",
    [
        ".", "*", "*.txt", "**", "**/*.txt", "out", "out/", "out/**", "out/*", "out/**/b.*", "*/deep", "?.txt", "[ab].*", "[!a].*",
        "x[[]1].txt", "a+b.txt", "none/**", "**/deep/**", "./out/*",
    ],
)  # fmt: skip
def test_patterns_match_what_a_glob_finds(tmp_path: Path, pattern: str) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert matching(FILES, [pattern]) == found_on_disk(tmp_path, pattern)


@pytest.mark.parametrize("pattern", ["../up", "/abs", "out/../../up"])
def test_what_leads_outside_matches_nothing(pattern: str) -> None:
    assert matching([*FILES, "up", "abs"], [pattern]) == []
