"""What jobs put where the agent reads: links, pipes and devices are not there for it."""

import os
from pathlib import Path

import pytest

from federator.kernel.files import write_durably
from federator_agent.safe_open import opened, read


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of a job's, reached through a link of the agent's own; beside it what the job may not see."""
    theirs = tmp_path / "theirs"
    (theirs / "rank-0").mkdir(parents=True)
    (theirs / "rank-0" / "log").write_text("own")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "log").write_text("secret")
    (tmp_path / "link").symlink_to(theirs)
    return tmp_path / "link"


def test_a_plain_file_is_read_as_far_as_is_asked(root: Path) -> None:
    assert read(root, root / "rank-0" / "log", 100) == b"own"
    assert read(root, root / "rank-0" / "log", 2) == b"ow"


def test_links_lead_nowhere(root: Path, tmp_path: Path) -> None:
    (root / "rank-1").symlink_to(tmp_path / "secret")
    (root / "mark").symlink_to(tmp_path / "secret" / "log")
    (root / "inside").symlink_to(root / "rank-0" / "log")
    ways = [root / name for name in ("rank-1/log", "mark", "inside", "gone", "../secret/log", "")]
    for path in (*ways, tmp_path / "secret" / "log"):
        with pytest.raises(FileNotFoundError):
            opened(root, path)


def test_what_is_no_file_keeps_nobody_waiting(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless", "rank-0"):
        with pytest.raises(FileNotFoundError):
            read(root, root / name, 100)


def test_nothing_is_written_through_a_link(root: Path, tmp_path: Path) -> None:
    """Its name can be known beforehand."""
    (root / ".go.new").symlink_to(tmp_path / "secret" / "log")
    write_durably(root / "go", b"1")
    assert (tmp_path / "secret" / "log").read_text() == "secret"
    assert (root / "go").read_text() == "1"
