"""Outputs of several pods become one archive."""

import io
import tarfile
from pathlib import Path

from federator_agent.kube.outputs import merge


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
