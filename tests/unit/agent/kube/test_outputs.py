"""Which outputs are taken from a pod: the same as from a directory of this host, by the same patterns."""

import io
import tarfile
from pathlib import Path

import pytest

from federator_agent import archives
from federator_agent.kube.outputs import matching, merge

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


@pytest.mark.parametrize(
    "pattern",
    ["*", "*.txt", "**", "**/*.txt", "out", "out/", "out/**", "out/*", "out/**/b.*", "*/deep", "?.txt", "[ab].*", "[!a].*",
     "x[[]1].txt", "a+b.txt", "../up", "/abs", "none/**", "**/deep/**", "./out/*"],
)  # fmt: skip
def test_patterns_mean_what_they_mean_here(tmp_path: Path, pattern: str) -> None:
    work = tmp_path / "work"
    for name in FILES:
        file = work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    archives.pack(work, (pattern,), tmp_path / "local.tar.gz")
    with tarfile.open(tmp_path / "local.tar.gz") as tar:
        here = sorted(tar.getnames())
    assert matching(FILES, [pattern]) == here


def test_of_files_with_one_name_the_lowest_ranks_counts(tmp_path: Path) -> None:
    archives_made = []
    for rank, files in enumerate(({"same": b"0"}, {"same": b"1", "./own": b"1"})):
        archives_made.append(tmp_path / f"{rank}.tar.gz")
        with tarfile.open(archives_made[-1], "w:gz") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    empty = tmp_path / "empty"
    empty.touch()
    assert merge([*archives_made, empty], tmp_path / "all.tar.gz") == 2
    with tarfile.open(tmp_path / "all.tar.gz") as tar:
        found = {member.name: tar.extractfile(member) for member in tar}
        assert {name: file.read() for name, file in found.items() if file} == {"same": b"0", "own": b"1"}
