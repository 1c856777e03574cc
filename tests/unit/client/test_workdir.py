"""Equal folders are equal archives; what ignore files exclude stays; nothing gets out of its folder."""

import io
import os
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from federator.client.workdir import listed, pack, unpack
from federator.kernel.errors import Invalid, TooLarge


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def archive_of(folder: Path, tmp_path: Path, limit_mib: int = 10) -> Path:
    archive = tmp_path / "packed.tar.gz"
    pack(folder, archive, limit_mib=limit_mib)
    return archive


def tar_of(*entries: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for info, content in entries:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    data.seek(0)
    return data


def test_the_same_code_has_the_same_hash_whenever_and_wherever_it_is_packed(tmp_path: Path) -> None:
    one = written(tmp_path / "one", {"b.py": "b", "a/c.py": "c"})
    other = written(tmp_path / "other", {"a/c.py": "c", "b.py": "b"})
    os.utime(one / "b.py", (1, 1))
    (one / "b.py").chmod(0o600)
    (other / "b.py").chmod(0o664)
    first = pack(one, tmp_path / "1", limit_mib=1)
    assert first == pack(other, tmp_path / "2", limit_mib=1)
    assert first.files == 2
    (other / "b.py").chmod(0o755)
    assert first.hash != pack(other, tmp_path / "3", limit_mib=1).hash


def test_what_is_packed_comes_out_again(tmp_path: Path) -> None:
    source = written(tmp_path / "source", {"run.sh": "#!/bin/sh", "data/x": "1", "empty/.keep": ""})
    (source / "run.sh").chmod(0o755)
    (source / "latest").symlink_to("data/x")
    with archive_of(source, tmp_path).open("rb") as data:
        files = unpack(data, tmp_path / "out")
    out = tmp_path / "out"
    assert sorted(file.name for file in files) == [".keep", "run.sh", "x"]
    assert (out / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (out / "data/x").stat().st_mode & 0o777 == 0o644
    assert (out / "latest").read_text() == "1"


def test_ignore_files_are_read_as_git_reads_them(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            ".gitignore": "*.log\n/build/\n!keep.log\n",
            ".federatorignore": "data/*.bin\n",
            "a.log": "", "keep.log": "", "build/x": "", "src/build/x": "", "data/a.bin": "", "data/a.txt": "",
            "sub/.gitignore": "!a.log\nsecret\n", "sub/a.log": "", "sub/secret": "", "secret": "",
            ".git/config": "", "sub/.git": "",
        },
    )  # fmt: skip
    files = {str(path) for path in listed(tmp_path) if (tmp_path / path).is_file()}
    assert files == {
        ".gitignore", ".federatorignore", "keep.log", "src/build/x", "data/a.txt", "sub/.gitignore", "sub/a.log", "secret",
    }  # fmt: skip


def test_a_link_out_of_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    folder = written(tmp_path / "f", {"a": ""})
    (folder / "out").symlink_to("/etc/passwd")
    with pytest.raises(Invalid, match=r"out leads out of the folder.*\.federatorignore"):
        archive_of(folder, tmp_path)
    (folder / "out").unlink()
    (folder / "up").symlink_to("sub/../../a")
    with pytest.raises(Invalid, match="leads out"):
        archive_of(folder, tmp_path)


def test_a_folder_over_the_limit_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    for number in range(3):
        (folder / str(number)).write_bytes(os.urandom(2**20))
    with pytest.raises(TooLarge, match="more than 1 MiB"):
        archive_of(folder, tmp_path, limit_mib=1)


def test_no_folder_is_an_error_that_names_the_field(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        archive_of(tmp_path / "none", tmp_path)
    assert caught.value.field == "$.workdir"


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


@pytest.mark.parametrize(
    "entry",
    [
        (tarfile.TarInfo("/etc/x"), b"x"),
        (tarfile.TarInfo("../x"), b"x"),
        (tarfile.TarInfo("a/../../x"), b"x"),
        link("l", "/etc"),
        link("l", "../x"),
        link("a/l", "../../x"),
        link("l", "a", tarfile.LNKTYPE),
        link("fifo", "", tarfile.FIFOTYPE),
    ],
    ids=lambda entry: f"{entry[0].name}-{entry[0].linkname}",
)
def test_an_archive_that_would_leave_its_folder_is_refused(
    entry: tuple[tarfile.TarInfo, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "out"
    with pytest.raises(Invalid, match="not unpacked"):
        unpack(tar_of(entry), out)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_is_written_through_a_link_that_the_archive_brought(tmp_path: Path) -> None:
    entries = (link("dir", "other"), (tarfile.TarInfo("dir/x"), b"x"))
    unpack(tar_of(*entries[1:]), tmp_path / "out")
    with pytest.raises((Invalid, OSError)):
        unpack(tar_of(*entries), tmp_path / "out")
    assert not (tmp_path / "out/other").exists()


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE
    return info, b""


@pytest.mark.parametrize(
    "links",
    [
        (link("x/a", "."), link("x/a/a/a/b", "../../.."), link("x/b/mine", "proj/x/evil")),
        (link("x/a", "."), link("x/a/a/a/b", "../../.."), link("x/b/new/mine", "../../out/x/evil")),
        (link("x/a", "."), link("x/a/mine", "evil")),
        (link("x/a", ".."), link("x/c", "a/../mine")),
        (link("x/y/a", "../.."), link("x/c", "y/a/.."), link("x/c/mine", "out/x/evil")),
        (link("x/a", "b"), link("x/b", "y"), link("x/y", ".."), link("x/c", "a/../../mine")),
    ],
)
def test_links_of_an_archive_lead_nowhere_together(
    links: tuple[tuple[tarfile.TarInfo, bytes], ...], tmp_path: Path
) -> None:
    """Each alone stays inside by its text."""
    mine = written(tmp_path, {"mine": "mine"}) / "mine"
    out = tmp_path / "out"
    with pytest.raises(Invalid, match="not unpacked"):
        unpack(tar_of(folder("x"), (tarfile.TarInfo("x/evil"), b"evil"), *links), out)
    assert not mine.is_symlink()
    assert mine.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]
    assert [path for path in out.rglob("*") if path.is_symlink()] == []


def test_links_to_one_another_and_to_nothing_are_unpacked(tmp_path: Path) -> None:
    entries = (link("a", "d/b"), link("d/b", "../c"), link("c", "none"), link("l", "l"), link("here", "."))
    for _ in range(2):
        unpack(tar_of(*entries), tmp_path / "out")
    assert {path.name: str(path.readlink()) for path in (tmp_path / "out").rglob("*") if path.is_symlink()} == {
        "a": "d/b", "b": "../c", "c": "none", "l": "l", "here": ".",
    }  # fmt: skip


@pytest.mark.parametrize("entry", [(tarfile.TarInfo("d"), b"x"), link("d", "e")], ids=["file", "link"])
def test_a_folder_is_not_replaced_by_an_entry(entry: tuple[tarfile.TarInfo, bytes], tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="not unpacked: d"):
        unpack(tar_of(folder("d"), entry), tmp_path / "out")


def test_nothing_is_written_through_a_link_that_was_there_before(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/dir").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Invalid, match="not unpacked"):
        unpack(tar_of((tarfile.TarInfo("dir/x"), b"x")), tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"no gzip", b"\x1f\x8b broken"])
def test_a_damaged_archive_is_told(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="damaged"):
        unpack(io.BytesIO(data), tmp_path)


def test_what_is_surely_too_large_is_refused_before_it_is_packed(tmp_path: Path) -> None:
    """Half a gigabyte was packed for half a minute, and then refused."""
    folder, archive = tmp_path / "f", tmp_path / "archive"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "data" / "weights").write_bytes(os.urandom(3 * 2**20))
    with pytest.raises(TooLarge, match="the largest in it: data 3MiB "):
        pack(folder, archive, limit_mib=1)
    assert not archive.exists()
    (folder / "data" / "weights").write_bytes(os.urandom(2**20 + 2**16))
    with pytest.raises(TooLarge):
        pack(folder, archive, limit_mib=1)
    assert not archive.exists(), "though it is only a little too large"


def test_what_may_be_small_enough_is_packed(tmp_path: Path) -> None:
    """Half of it compresses to nothing: how much of it that is, samples do not say for sure."""
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "noise").write_bytes(os.urandom(2**20 - 2**16))
    (folder / "zeros").write_bytes(bytes(2**20))
    for number in range(50):
        (folder / f"empty-{number}").touch()
    assert pack(folder, tmp_path / "archive", limit_mib=1).files == 52


def test_what_shrinks_below_the_limit_is_packed_and_told_of(tmp_path: Path) -> None:
    folder, told = tmp_path / "f", list[tuple[int, int]]()
    folder.mkdir()
    (folder / "zeros").write_bytes(bytes(3 * 2**20))
    (folder / "more").write_bytes(bytes(2**20))
    pack(folder, tmp_path / "archive", limit_mib=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(2**20, 2**22), (2**22, 2**22)]


def test_more_than_the_disk_has_free_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    entry = (tarfile.TarInfo("zeros"), bytes(2**20 + 1))
    with pytest.raises(Invalid, match="larger than"):
        unpack(tar_of(entry), tmp_path / "out")
    assert not (tmp_path / "out").exists()
