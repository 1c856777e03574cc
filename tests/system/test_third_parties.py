"""A provider of a third party: a distribution of its own is installed beside Federator, and the settings name it. Its code is the page's."""

import subprocess
import sys
from pathlib import Path

import pytest

from federator.cli.demo.federation import DemoFederation, NotStarted
from federator.cli.demo.world import Document
from tests.docs.walkthrough import File, read_page

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "shelf-for-federator"
version = "1.0"

[project.entry-points."federator.providers"]
shelf = "shelf_for_federator:provider"
"""


class ShelfFederation(DemoFederation):
    """Its provider is of the type that is named."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(folder, 1.0)
        self._kind = kind

    def _settings(self) -> Document:
        provider = {"type": self._kind, "site": "shelf", "region": "local"}
        return super()._settings() | {"providers": {"mine": provider}}


def install(folder: Path) -> Path:
    """Build and install the distribution, as `pip install` does; where its modules are."""
    (page,) = (
        step
        for step in read_page(CONTRIBUTING)
        if isinstance(step, File) and step.name == "providers/federator_providers/shelf.py"
    )
    package = folder / "source" / "shelf_for_federator"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(page.content)
    (folder / "source" / "pyproject.toml").write_text(PROJECT)
    words = ("install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, str(folder / "installed")]
    subprocess.run([*command, str(folder / "source")], check=True, timeout=120)
    return folder / "installed"


@pytest.mark.system
async def test_what_a_provider_of_a_third_party_offers_is_there_once_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install(tmp_path)))
    (tmp_path / "world").mkdir()
    federation = ShelfFederation(tmp_path / "world", "shelf")
    try:
        await federation.start_dispatcher()
        (offer,) = await federation.admin.offers()
        assert (offer.provider, offer.name, offer.price_usd_h) == ("mine", "local/box/on-demand", 3.6)
    finally:
        await federation.end()


@pytest.mark.system
async def test_a_type_that_nobody_has_installed_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    federation = ShelfFederation(tmp_path, "shelf")
    try:
        with pytest.raises(
            NotStarted, match=r"no provider type 'shelf' \(write aws, azure, gce, kubernetes, local, ssh\)"
        ):
            await federation.start_dispatcher()
    finally:
        await federation.end()
