"""A job leaves folders nested deeper than a recursive walk can follow, or links in what the agent hands on."""

import os
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator_agent import archives, job_folders
from federator_agent.data.checkpoints import files_in
from federator_agent.spool import Spool

LEVELS = 2_100
"""More than Python can recurse, and than one path can name."""
TOO_MANY = job_folders.MOST_LEVELS + 1


def nest(folder: Path, levels: int) -> None:
    """Folders in each other, each with a file and a link to all of them, as a job can make them by steps."""
    folder.mkdir(parents=True)
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.symlink(folder, "link", dir_fd=at)
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_folders_of_any_depth_are_removed_and_nothing_that_links_lead_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("stays")
    doomed = tmp_path / "doomed"
    nest(doomed, LEVELS)
    (doomed / "way-out").symlink_to(kept)
    (doomed / "d" / "way-out").symlink_to(kept)
    job_folders.remove(doomed, strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").read_text() == "stays"
    job_folders.remove(doomed, strict=True)


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("stays")
    (tmp_path / "doomed").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="doomed"):
        job_folders.remove(tmp_path / "doomed", strict=True)
    job_folders.remove(tmp_path / "doomed")
    assert (tmp_path / "kept" / "file").read_text() == "stays"


def test_removing_holds_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nest(tmp_path / "doomed", 300)
    held, most = set[int](), 0
    opens, closes = os.open, os.close

    def opening(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        nonlocal most
        fd = opens(path, flags, dir_fd=dir_fd)
        held.add(fd)
        most = max(most, len(held))
        return fd

    def closing(fd: int) -> None:
        held.discard(fd)
        closes(fd)

    monkeypatch.setattr("os.open", opening)
    monkeypatch.setattr("os.close", closing)
    job_folders.remove(tmp_path / "doomed", strict=True)
    assert not held
    assert most == 2


@pytest.mark.parametrize(
    "look", [files_in, lambda folder: archives.pack(folder, ("**",), folder.parent / "x")]
)
def test_what_is_looked_through_is_refused_where_it_is_too_deep(tmp_path: Path, look: object) -> None:
    assert callable(look)
    nest(tmp_path / "work", TOO_MANY)
    with pytest.raises(OSError, match="nested more than 256 deep"):
        look(tmp_path / "work")
    with pytest.raises(OSError, match="nested more than 256 deep"):
        job_folders.give(tmp_path / "work", os.getuid(), os.getgid())
    job_folders.remove(tmp_path / "work", strict=True)


def test_checkpoints_that_are_too_deep_are_dropped_when_they_are_old(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    nest(spool.checkpoints / "job", LEVELS)
    os.utime(spool.checkpoints / "job", (0, 0))
    spool.drop_checkpoints(set())
    assert not list(spool.checkpoints.iterdir())


def test_what_is_as_deep_as_allowed_is_looked_through(tmp_path: Path) -> None:
    nest(tmp_path / "work", job_folders.MOST_LEVELS)
    assert len(list(job_folders.walk(tmp_path / "work"))) == job_folders.MOST_LEVELS + 1


def test_what_an_input_leads_to_is_not_opened_to_all(tmp_path: Path) -> None:
    """An input at a `file` address is a link to it."""
    secret = tmp_path / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    brought = tmp_path / "inputs"
    brought.mkdir(mode=0o700)
    (brought / "below").mkdir(mode=0o700)
    (brought / "below" / "own").touch(mode=0o600)
    for at in (brought, brought / "below"):
        (at / "file").symlink_to(secret)
        (at / "folder").symlink_to(closed)
        (at / "gone").symlink_to(tmp_path / "nowhere")
    job_folders.let_read(brought)
    assert (secret.stat().st_mode & 0o777, closed.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (brought / "below" / "own").stat().st_mode & 0o777 == 0o644
    assert brought.stat().st_mode & 0o777 == 0o755


def test_links_that_lead_round_are_not_followed_in_search_of_outputs(tmp_path: Path) -> None:
    """Two links to their own folder are 2^40 paths to whoever follows them."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "result").write_text("x")
    for name in ("a", "b"):
        (work / name).symlink_to(".")
    (work / "c").symlink_to("c")
    assert archives.pack(work, ("**", "**/*", "a/*"), tmp_path / "out") == 1


def test_outputs_with_holes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """A terabyte of nothing takes a job no room, and an agent hours to read."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "a").write_text("small")
    with (work / "b").open("wb") as file:
        file.truncate(2**40)
    archive = tmp_path / "outputs.tar.gz"
    with pytest.raises(Invalid, match="in all, with 'b'"):
        archives.pack(work, ("**",), archive)
    assert archive.stat().st_size < 1000
    assert archives.pack(work, ("a",), archive) == 1


def test_many_outputs_are_bounded_together(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 500)
    with pytest.raises(Invalid, match="'c'"):
        archives.pack(tmp_path, ("?",), tmp_path / "outputs.tar.gz", 1000)
