"""Archives from outside are looked at member by member; archives that go home hold only what lies in the work directory."""

import io
import tarfile
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator_agent import archives


def tar_of(path: Path, *members: tuple[str, bytes, str]) -> Path:
    """An archive of (name, type, content or link target)."""
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            member.mode = 0o6755
            data = content.encode() if kind == tarfile.REGTYPE else b""
            member.size = len(data)
            member.linkname = "" if kind == tarfile.REGTYPE else content
            tar.addfile(member, io.BytesIO(data))
    return path


FILE, DIR, LINK, HARD, FIFO, DEVICE = (
    tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE
)  # fmt: skip


@pytest.mark.parametrize(
    "members",
    [
        [("../escaped", FILE, "x")],
        [("a/../../escaped", FILE, "x")],
        [("/escaped", FILE, "x")],
        [("l", LINK, "/etc")],
        [("a/l", LINK, "../../outside")],
        [("l", LINK, "."), ("l/escaped", FILE, "x")],
        [("l", LINK, "inside"), ("l", DIR, "")],
        [("h", HARD, "../outside")],
        [("h", HARD, "/etc/passwd")],
        [("l", LINK, "x"), ("h", HARD, "l")],
        [("f", FILE, "x"), ("f/g", FILE, "x")],
        [("p", FIFO, "")],
        [("d", DEVICE, "")],
    ],
)
def test_members_that_could_do_harm_are_refused(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    (tmp_path / "outside").write_text("untouched")
    with pytest.raises(Invalid):
        archives.unpack(tar_of(tmp_path / "a.tar.gz", *members), tmp_path / "work")
    assert not list(tmp_path.rglob("escaped"))
    assert (tmp_path / "outside").read_text() == "untouched"


def test_a_link_that_is_replaced_by_a_file_is_not_written_through(tmp_path: Path) -> None:
    archive = tar_of(
        tmp_path / "a.tar.gz", ("target", FILE, "old"), ("l", LINK, "target"), ("l", FILE, "new")
    )
    archives.unpack(archive, tmp_path / "work")
    assert (tmp_path / "work/target").read_text() == "old"
    assert (tmp_path / "work/l").read_text() == "new"


def test_what_is_harmless_is_unpacked_anew_without_special_bits(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "stale").touch()
    archive = tar_of(
        tmp_path / "a.tar.gz",
        (".", DIR, ""),
        ("d/run.sh", FILE, "x"),
        ("d/l", LINK, "../d/run.sh"),
        ("h", HARD, "d/run.sh"),
    )
    archives.unpack(archive, work)
    assert sorted(str(path.relative_to(work)) for path in work.rglob("*")) == ["d", "d/l", "d/run.sh", "h"]
    assert (work / "d/run.sh").stat().st_mode & 0o7777 == 0o700


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    for data in (b"", b"not a tar", tar_of(tmp_path / "a", ("f", FILE, "x" * 5000)).read_bytes()[:-30]):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(Invalid):
            archives.unpack(tmp_path / "bad", tmp_path / "work")


def test_an_archive_that_swells_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 100)
    with pytest.raises(Invalid, match="over"):
        archives.unpack(tar_of(tmp_path / "a", ("f", FILE, "x" * 101)), tmp_path / "work")


def test_outputs_are_files_inside_the_work_directory_each_once(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "results/deep").mkdir(parents=True)
    for name in ("results/a", "results/deep/b", ".hidden", "other"):
        (work / name).write_text(name)
    (work / "results/inner").symlink_to("deep/b")
    (work / "results/outer").symlink_to("/etc/passwd")
    (tmp_path / "secret").write_text("x")
    patterns = ("results/**", "results", "results/deep/*", "../secret", "/etc/passwd", ".hidden", "nothing*")
    assert archives.pack(work, patterns, tmp_path / "out") == 4
    with tarfile.open(tmp_path / "out") as tar:
        assert tar.getnames() == [".hidden", "results/a", "results/deep/b", "results/inner"]
        inner = tar.extractfile("results/inner")
        assert inner is not None
        assert inner.read() == b"results/deep/b"


def test_a_file_with_two_names_is_packed_under_both(tmp_path: Path) -> None:
    """Else who reads `best.pt` alone would be given a link to what they do not read."""
    work = tmp_path / "work"
    (work / "epochs").mkdir(parents=True)
    (work / "epochs" / "5.pt").write_text("42")
    (work / "last.pt").hardlink_to(work / "epochs" / "5.pt")
    archives.pack(work, ("**",), tmp_path / "out.tar.gz")
    archives.unpack(tmp_path / "out.tar.gz", tmp_path / "read", only="last.pt", links=False)
    assert (tmp_path / "read" / "last.pt").read_text() == "42"


@pytest.mark.parametrize("swapped", ["results", "results/step"])
def test_a_link_that_a_running_job_puts_in_the_place_of_a_file_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """The agent may be root, and the job is not: between the look and the opening lies all that is packed before."""
    work, secret = tmp_path / "work", tmp_path / "secret"
    for folder in (work / "results", secret):
        folder.mkdir(parents=True)
        (folder / "step").write_text(folder.name)
    (work / "kept").write_text("kept")
    looked = archives.matching_names

    def then_swap(held: int, patterns: tuple[str, ...]) -> list[str]:
        found = looked(held, patterns)
        (work / swapped).rename(tmp_path / "aside")
        (work / swapped).symlink_to(secret / Path(swapped).relative_to("results"))
        return found

    monkeypatch.setattr(archives, "matching_names", then_swap)
    archives.pack(work, ("**",), tmp_path / "packed.tar.gz")
    with tarfile.open(tmp_path / "packed.tar.gz") as packed:
        assert packed.getnames() == ["kept"]


def test_a_work_directory_that_has_become_a_link_has_no_outputs(tmp_path: Path) -> None:
    """At Slurm the job's user owns the folder around it, and the agent that packs may be root."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "key").write_text("secret")
    (tmp_path / "work").symlink_to("state")
    assert archives.pack(tmp_path / "work", ("**",), tmp_path / "a.tar.gz") == 0
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getnames() == []


@pytest.mark.parametrize(
    ("pattern", "packed"),
    [
        ("**", ["a/b/c.txt", "a/d.log", "e.txt"]),
        ("**/*.txt", ["a/b/c.txt", "e.txt"]),
        ("a/**/*.txt", ["a/b/c.txt"]),
        ("**/b/**", ["a/b/c.txt"]),
        ("*", ["a/b/c.txt", "a/d.log", "e.txt"]),
        ("*.txt", ["e.txt"]),
        ("a/*", ["a/b/c.txt", "a/d.log"]),
        ("a/[!b].*", ["a/d.log"]),
        (".", ["a/b/c.txt", "a/d.log", "e.txt"]),
    ],
)
def test_what_a_pattern_packs(tmp_path: Path, pattern: str, packed: list[str]) -> None:
    work = tmp_path / "work"
    for name in ("a/b/c.txt", "a/d.log", "e.txt"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).touch()
    assert archives.pack(work, (pattern,), tmp_path / "out") == len(packed)
    with tarfile.open(tmp_path / "out") as tar:
        assert tar.getnames() == packed
