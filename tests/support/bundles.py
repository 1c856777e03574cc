"""Bundles as `make bundle` makes them, of other versions and with other contents, whose hosts take their packages from the tests' own environment."""

import re
import shutil
import zipfile
from pathlib import Path

from tests.testbeds import images
from tools.bundle import ROOT, sign
from tools.images import ROLES

ONE_PACKAGE = "tenacity"
"""Installed by its hash from the lock, for all that stand there: the other packages would take minutes."""


def make_bundle(folder: Path, wheel: Path, version: str, patches: dict[str, str] | None = None) -> Path:
    """The bundle of that version of the wheel, where files of it end with these lines more."""
    folder.mkdir()
    for path in (ROOT / "deploy" / "install").iterdir():
        shutil.copy(path, folder)
    for role in ROLES:
        lock = (ROOT / "requirements" / f"{role}.txt").read_text()
        found = re.search(rf"^{ONE_PACKAGE}==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
        assert found
        (folder / f"{role}.txt").write_text(found[0])
    (folder / "packages").mkdir()
    for name, where in ((ONE_PACKAGE, folder / "packages"), ("pip", folder)):
        (one,) = (images.place() / "wheels").glob(f"{name}-*")
        shutil.copy(one, where)
    _another_version(wheel, folder, version, patches or {})
    sign(folder)
    return folder


def _another_version(wheel: Path, folder: Path, version: str, patches: dict[str, str]) -> None:
    own = wheel.name.split("-")[1]
    with (
        zipfile.ZipFile(wheel) as old,
        zipfile.ZipFile(folder / wheel.name.replace(f"-{own}-", f"-{version}-"), "w") as new,
    ):
        for name in old.namelist():
            text = old.read(name) + patches.get(name, "").encode()
            if name.endswith(".dist-info/METADATA"):
                text = text.replace(f"\nVersion: {own}\n".encode(), f"\nVersion: {version}\n".encode())
            new.writestr(name.replace(f"federator-{own}.dist-info", f"federator-{version}.dist-info"), text)
