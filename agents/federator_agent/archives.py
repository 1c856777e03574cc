"""Archives: work directories in, outputs out. What comes in is from outside, so every member is looked at before it is written.

Only plain files, directories and links that stay inside are unpacked. Nothing is written through a link, nothing outside the
target, no devices, and no more than the limits allow. An archive that tries is refused whole, by name of the member.
"""

import contextlib
import errno
import os
import shutil
import tarfile
import zlib
from itertools import islice
from pathlib import Path, PurePosixPath

from federator.kernel.errors import Invalid
from federator.kernel.globs import matching
from federator.kernel.quantities import format_bytes
from federator.kernel.tars import MAX_BYTES, members
from federator_agent import job_folders
from federator_agent.safe_open import opened


def unpack(
    archive: Path,
    target: Path,
    *,
    most_bytes: float | None = None,
    only: str = "",
    fresh: bool = True,
    links: bool = True,
) -> None:
    """Unpack a gzipped tar into a directory, which is made anew if `fresh`; of its members `only` that one and those below it. Raises `Invalid` for an archive that is not harmless, larger than `most_bytes` (None: than the limit of all archives), or has `links` where there should be none."""
    if fresh:
        job_folders.remove(target)
    target.mkdir(parents=True, exist_ok=not fresh)
    try:
        with archive.open("rb") as file:
            for tar, member in members(file, most_bytes=MAX_BYTES if most_bytes is None else most_bytes):
                if not links and member.issym():
                    raise Invalid(f"the archive has a link, and outputs have none: {member.name[:200]!r}")
                if not only or f"{PurePosixPath(member.name)}/".startswith(f"{only}/"):
                    _place(tar, member, target)
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Invalid(f"the work directory is not a readable gzipped tar: {error}") from None


def names(archive: Path, most: int) -> list[str]:
    """What its first members are called, so many at most. Raises as `unpack`, for what cannot be read."""
    with archive.open("rb") as file:
        return [member.name for _, member in islice(members(file), most)]


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    path = target / _inside(member.name, member.name)
    if path != target:
        _make_parents(path.parent, target, member.name)
        _write(tar, member, path, target)


def _inside(name: str, member: str) -> PurePosixPath:
    """A member's path, normalized. Raises `Invalid` when it leads out of the archive's own directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise Invalid(f"the work directory's archive has a member that leads outside: {member[:200]!r}")
    if len(path.parts) > job_folders.MOST_LEVELS:
        raise Invalid(
            f"the work directory's archive nests folders more than {job_folders.MOST_LEVELS} deep: {member[:200]!r}",
            remedy="nest them less",
        )
    return path


def _make_parents(parent: Path, target: Path, member: str) -> None:
    """Make the directories above a member, none of which may be a link."""
    for part in [*reversed(parent.relative_to(target).parents), parent.relative_to(target)]:
        directory = target / part
        if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
            raise Invalid(
                f"the work directory's archive has a member under something not a directory: {member!r}"
            )
        directory.mkdir(exist_ok=True)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, target: Path) -> None:
    if member.isdir():
        if path.is_symlink():
            raise Invalid(f"the work directory's archive has two members of one name: {member.name!r}")
        path.mkdir(exist_ok=True)
        return
    if path.is_symlink() or path.is_file():
        path.unlink()
    if member.issym():
        _check_link(member, path, target)
        path.symlink_to(member.linkname)
    elif member.islnk():
        source = target / _inside(member.linkname, member.name)
        if (
            source.is_symlink()
            or not source.is_file()
            or not source.resolve().is_relative_to(target.resolve())
        ):
            raise Invalid(
                f"the work directory's archive has a link to something that is not a file: {member.name!r}"
            )
        os.link(source, path)
    elif member.isfile():
        content = tar.extractfile(member)
        assert content is not None
        with content, path.open("xb") as file:
            shutil.copyfileobj(content, file, 2**20)
        path.chmod(0o700 if member.mode & 0o111 else 0o600)
    else:
        raise Invalid(
            f"the work directory's archive has a member that is neither file, directory nor link: {member.name!r}"
        )


def _check_link(member: tarfile.TarInfo, path: Path, target: Path) -> None:
    """A link may point to what is, or will be, inside; where it leads is judged by its text, not by what exists now."""
    end = os.path.normpath(path.parent.relative_to(target) / member.linkname)
    if PurePosixPath(member.linkname).is_absolute() or end == ".." or end.startswith("../"):
        raise Invalid(f"the work directory's archive has a link that leads outside: {member.name!r}")


def pack(work: Path, patterns: tuple[str, ...], archive: Path, most_bytes: float = MAX_BYTES) -> int:
    """Pack the plain files under `work` that match, into a gzipped tar; how many. Links are followed only inside `work`, which itself is none.

    Raises `Invalid` for more than `most_bytes` in all, before what is over them is read: a file with holes takes no room and no end.
    """
    held = _held(work)
    if held is None:
        tarfile.open(archive, "w:gz").close()
        return 0
    try:
        names = matching_names(held, patterns)
        # A file under two names is in it twice: whoever reads one of them need not have the other.
        with tarfile.open(archive, "w:gz", compresslevel=3, dereference=True) as tar:
            left = most_bytes
            for name in names:
                left -= _add(tar, held, name, left)
    finally:
        os.close(held)
    return len(names)


def _held(work: Path) -> int | None:
    """The directory itself, whatever a job puts in its place later; None: there is none, but maybe a link that a job has put there."""
    try:
        return os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
            return None
        raise


def matching_names(held: int, patterns: tuple[str, ...]) -> list[str]:
    """Names below the open folder `held` that match a pattern, each once."""
    root = Path(f"/proc/self/fd/{held}").readlink()
    names = (str(level.path / file) for level in job_folders.walk(root) for file in level.files)
    return [name for name in matching(names, patterns) if _is_inside(root, Path(name))]


def _is_inside(root: Path, name: Path) -> bool:
    """Whether it is a file, itself or what a link leads to, that lies below the root."""
    with contextlib.suppress(OSError, RuntimeError):  # a link that leads round in circles
        return (root / name).is_file() and (root / name).resolve().is_relative_to(root)
    return False


def _add(tar: tarfile.TarFile, held: int, name: str, most_bytes: float) -> int:
    """One file, if it is there yet; its size. A job may run while it is packed, and put a link in the place of what was looked at: then it is left out."""
    at = Path(f"/proc/self/fd/{held}")
    root = at.readlink()
    with contextlib.suppress(FileNotFoundError, ValueError):
        inside = (root / name).resolve().relative_to(root)
        with opened(at, at / inside) as content:
            info = tar.gettarinfo(arcname=name, fileobj=content)
            if info.size > most_bytes:
                raise Invalid(
                    f"the collected outputs are over {format_bytes(MAX_BYTES)} in all, with {name[:200]!r}",
                    remedy="collect less",
                )
            tar.addfile(info, content if info.isreg() else None)
            return info.size
    return 0
