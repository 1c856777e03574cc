"""Make what a host is installed from: `make bundle`.

One archive with the installer, the units, our wheel from this tree, the locks of both roles, and the hash of each of them. With `--packages` it also has the wheels of the locks, for hosts
that reach no index.
"""

import argparse
import gzip
import hashlib
import re
import shutil
import sys
import tarfile
import tomllib
from pathlib import Path

from tools.images import EPOCH, ROLES, UNUSED, load_pip, load_wheels, wheel_of_this_tree

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Make what the command line says."""
    parser = argparse.ArgumentParser(
        prog="make bundle", description="Make the archive that hosts are installed from."
    )
    parser.add_argument(
        "--packages", action="store_true", help="with all packages that either role needs (some 190 MB)"
    )
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder of the archive (dist)")
    options = parser.parse_args()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    folder = options.into / f"federator-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    fill(folder, with_packages=options.packages)
    archive = options.into / f"{folder.name}.tar.gz"
    pack(folder, archive)
    sys.stdout.write(f"{archive}  sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}\n")


def fill(folder: Path, *, with_packages: bool) -> None:
    """Put everything in its place there."""
    wheel_of_this_tree(folder)
    load_pip(folder)
    for path in sorted((ROOT / "deploy" / "install").iterdir()):
        shutil.copy(path, folder)
    for role in ROLES:
        if with_packages:
            load_wheels(role, folder / "packages")
        (folder / f"{role}.txt").write_text(used((ROOT / "requirements" / f"{role}.txt").read_text()))
    sign(folder)


def used(lock: str) -> str:
    """The lock without what is never imported here."""
    return re.sub(rf"^(?:{'|'.join(UNUSED)})==(?:.*\\\n)*.*\n", "", lock, flags=re.MULTILINE)


def sign(folder: Path) -> None:
    """Write down the hash of each file. Packages have theirs in the locks."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != "SHA256SUMS"
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))


def pack(folder: Path, archive: Path) -> None:
    """One archive of it, which is nobody's in particular and of no time."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = int(EPOCH)
        entry.mode = 0o755 if entry.isdir() or entry.name.endswith(".sh") else 0o644
        return entry

    with (
        gzip.GzipFile(archive, "wb", mtime=int(EPOCH)) as packed,
        tarfile.open(fileobj=packed, mode="w|") as file,
    ):
        file.add(folder, folder.name, filter=plain)


if __name__ == "__main__":
    main()
