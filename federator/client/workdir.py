"""Folders to and from gzipped tars: the working directory that a job takes along, and the outputs it leaves.

The archive of a folder depends on its files' names, contents and executable bits only, so that the same code has the same
hash, and is uploaded once, whoever packs it and when. An archive from outside is unpacked without ever writing beyond the
folder it is meant for.
"""

import gzip
import hashlib
import math
import os
import shutil
import stat
import tarfile
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple

from federator.kernel.errors import Invalid, TooLarge
from federator.kernel.quantities import format_bytes, format_mib
from federator.kernel.tars import members

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".federatorignore")
ALWAYS_LEFT_OUT = (".git",)
MOST_LEVELS = 256
"""Folders nested deeper are not unpacked; no agent packs them."""
GZIP_LEVEL = 6
SAMPLES, SAMPLE_BYTES, SURELY = 64, 2**16, 1.03
"""So many pieces of so many bytes, spread evenly over all files, are compressed, to refuse at once what is surely too large: so many times the limit,
for a piece compresses a little worse by itself, and after three standard errors."""
UNPACKED_BYTES = 2**40
"""An archive of many agents' outputs may be so large, unpacked, and no larger than what the disk has free."""


class Packed(NamedTuple):
    """An archive on disk: the hash of its bytes (hex), how many files it holds, and its size."""

    hash: str
    files: int
    size_bytes: int


class _Ignores(NamedTuple):
    """The ignore files of one folder, whose patterns are relative to it."""

    base: PurePosixPath
    spec: "GitIgnoreSpec"


def pack(
    folder: Path, archive: Path, *, limit_mib: int, progress: Callable[[int, int], None] | None = None
) -> Packed:
    """Pack what `folder` holds and its ignore files do not exclude. Raises `Invalid`, or `TooLarge` over `limit_mib` compressed: before it begins, where samples of the files say so.

    `progress` is told of how many bytes so many are packed.
    """
    if not folder.is_dir():
        raise Invalid(f"{folder} is not a folder", field="$.workdir", remedy="name an existing one")
    entries = listed(folder)
    sizes = {path: _size(folder / path) for path in entries}
    total, done = sum(sizes.values()), 0
    limit = limit_mib * 2**20
    if total > limit and _compressed(folder, sizes) > limit * SURELY:
        raise _too_large(folder, sizes, limit_mib)
    files = 0
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in entries:
            files += _add(tar, folder, path)
            done += sizes[path]
            if progress is not None:
                progress(done, total)
            if raw.tell() > limit:
                raise _too_large(folder, sizes, limit_mib)
    return Packed(hash_of(archive), files, archive.stat().st_size)


def _size(file: Path) -> int:
    status = file.lstat()
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _compressed(folder: Path, sizes: Mapping[PurePosixPath, int]) -> float:
    """How many bytes it all has at least once it is compressed, by pieces of it."""
    files = [(path, size) for path, size in sizes.items() if size]
    ends = list(accumulate(size for _, size in files))
    ratios: list[float] = []
    for number in range(SAMPLES):
        middle = int(ends[-1] * (number + 0.5) / SAMPLES)
        at = bisect_right(ends, middle)
        path, size = files[at]
        with (folder / path).open("rb") as content:
            content.seek(max(0, min(middle - ends[at] + size, size - SAMPLE_BYTES)))
            sample = content.read(SAMPLE_BYTES)
        ratios.append(len(zlib.compress(sample, GZIP_LEVEL)) / max(1, len(sample)))
    mean = sum(ratios) / SAMPLES
    error = math.sqrt(sum((ratio - mean) ** 2 for ratio in ratios) / (SAMPLES - 1) / SAMPLES)
    return ends[-1] * (mean - 3 * error)


def _too_large(folder: Path, sizes: Mapping[PurePosixPath, int], limit_mib: int) -> TooLarge:
    """It names what is largest: that is what was not meant to go along."""
    tops: Counter[str] = Counter()
    for path, size in sizes.items():
        tops[path.parts[0]] += size
    largest = ", ".join(
        f"{name} {format_mib(size >> 20)}" for name, size in tops.most_common(3) if size >> 20
    )
    return TooLarge(
        f"{folder} has more than {limit_mib} MiB, compressed; the largest in it: {largest}",
        field="$.workdir",
        remedy="list what the job does not need in .federatorignore",
    )


def hash_of(file: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def listed(folder: Path) -> list[PurePosixPath]:
    """What would be packed: files, links and folders, relative to `folder` and in one order everywhere."""
    return sorted(_walk(folder, PurePosixPath(), ()))


def _walk(root: Path, here: PurePosixPath, above: tuple[_Ignores, ...]) -> Iterator[PurePosixPath]:
    ignores = above + _ignores_in(root, here)
    for entry in os.scandir(root / here):
        path = here / entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in ALWAYS_LEFT_OUT or _ignored(path, ignores, is_folder=is_folder):
            continue
        if is_folder:
            yield path
            yield from _walk(root, path, ignores)
        elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
            yield path


def _ignores_in(root: Path, here: PurePosixPath) -> tuple[_Ignores, ...]:
    lines: list[str] = []
    for name in IGNORE_FILES:
        file = root / here / name
        if file.is_file():
            lines += file.read_text(errors="replace").splitlines()
    if not lines:
        return ()
    from pathspec import GitIgnoreSpec

    return (_Ignores(here, GitIgnoreSpec.from_lines(lines)),)


def _ignored(path: PurePosixPath, ignores: tuple[_Ignores, ...], *, is_folder: bool) -> bool:
    """By the nearest folder that has something to say, as git does: a deeper `!keep` overrules."""
    for level in reversed(ignores):
        name = f"{path.relative_to(level.base)}{'/' if is_folder else ''}"
        include = level.spec.check_file(name).include
        if include is not None:
            return include
    return False


def _add(tar: tarfile.TarFile, folder: Path, path: PurePosixPath) -> int:
    """One entry, stripped of whose it is and when; answers how many files that was."""
    source = folder / path
    info = tarfile.TarInfo(str(path))
    status = source.lstat()
    info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(source.readlink()), 0o777
        if not _stays_inside(path, info.linkname):
            remedy = "list it in .federatorignore, or put a copy in its place"
            raise Invalid(
                f"the link {path} leads out of the folder, to {info.linkname}",
                field="$.workdir",
                remedy=remedy,
            )
        tar.addfile(info)
    elif stat.S_ISDIR(status.st_mode):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info)
    else:
        info.size = status.st_size
        with source.open("rb") as content:
            tar.addfile(info, content)
        return 1
    return 0


def _stays_inside(path: PurePosixPath, target: str) -> bool:
    """Whether a link at `path` points below the root that `path` is relative to."""
    depth = len(path.parts) - 1
    for part in PurePosixPath(target).parts:
        depth += {"..": -1, ".": 0, "/": -10_000}.get(part, 1)
        if depth < 0:
            return False
    return True


def unpack(archive: IO[bytes], into: Path, *, several: bool = False) -> list[Path]:
    """Unpack a gzipped tar, or with `several` one after another, below `into`; answers the files written. Raises `Invalid` for entries that would leave it, and for what is over the limits of archives.

    Links are made last, and none through another, so that nothing is ever written through one that the archive brought.
    """
    root = into.resolve()
    written: list[Path] = []
    links: list[tuple[Path, str]] = []
    most_bytes = min(UNPACKED_BYTES, shutil.disk_usage(nearest_folder(root)).free)
    try:
        for tar, entry in members(archive, most_bytes=most_bytes, several=several):
            target = _target(root, entry)
            if entry.isdir():
                target.mkdir(parents=True, exist_ok=True)
            elif entry.issym():
                links.append((target, entry.linkname))
            else:
                _write(root, tar, entry, target)
                written.append(target)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError) as error:
        raise Invalid(f"the archive is damaged: {error}", remedy="download it again") from None
    _link(root, links)
    return written


def nearest_folder(path: Path) -> Path:
    """The innermost folder round it that is there: of the disk on which it will be."""
    root = path.resolve()
    return next(each for each in (root, *root.parents) if each.is_dir())


def refuse_without_room(folder: Path, packed_bytes: int) -> None:
    """Raise `TooLarge` where a disk has no room for an archive, before any of it is fetched. What it unpacks to is known only then."""
    free = shutil.disk_usage(folder).free
    if packed_bytes > free:
        raise TooLarge(
            f"the archive has {format_bytes(packed_bytes)}, and the disk of {folder} {format_bytes(free)} free",
            remedy="make room, or name a folder of another disk",
        )


def _link(root: Path, links: list[tuple[Path, str]]) -> None:
    """Make the links. Where one leads is known only once all are there: if any leads out of `root`, all are taken away again."""
    with ExitStack() as undo:
        for target, leads_to in links:
            if target.parent.resolve() != target.parent:
                raise _refused(str(target.relative_to(root)))
            _make_room(root, target)
            target.symlink_to(leads_to)
            undo.callback(target.unlink, missing_ok=True)
        for target, _ in links:
            if not Path(os.path.realpath(target)).is_relative_to(root):
                raise _refused(str(target.relative_to(root)))
        undo.pop_all()


def _make_room(root: Path, target: Path) -> None:
    """The folder round it; what was in its place is gone, unless that is a folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        raise _refused(str(target.relative_to(root)))
    target.unlink(missing_ok=True)


def _target(root: Path, entry: tarfile.TarInfo) -> Path:
    """Where an entry goes, if it stays below `root`, links that are already there considered."""
    path = PurePosixPath(entry.name)
    if len(path.parts) > MOST_LEVELS:
        raise Invalid(f"the archive nests folders more than {MOST_LEVELS} deep: {entry.name[:200]}")
    target = root / path
    outside = path.is_absolute() or ".." in path.parts or not target.parent.resolve().is_relative_to(root)
    strange = not (entry.isfile() or entry.isdir() or entry.issym())
    if outside or strange or (entry.issym() and not _stays_inside(path, entry.linkname)):
        raise _refused(entry.name)
    return target


def _refused(name: str) -> Invalid:
    return Invalid(
        f"the archive has an entry that is not unpacked: {name[:200]}",
        remedy="it would leave the folder, takes the place of one, or is not a regular file",
    )


def _write(root: Path, tar: tarfile.TarFile, entry: tarfile.TarInfo, target: Path) -> None:
    content = tar.extractfile(entry)
    assert content is not None
    _make_room(root, target)
    with content, target.open("xb") as file:
        shutil.copyfileobj(content, file)
    target.chmod(0o755 if entry.mode & stat.S_IXUSR else 0o644)
