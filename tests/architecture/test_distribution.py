"""What is installed: four packages and nothing beside them, and an agent that runs without the heavy libraries."""

import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, text, tracked
from tools.lock import ROLES

TOP_LEVEL = {Path(package).name for package in PACKAGES}
HEAVY = (
    "absl",
    "aetcd",
    "boto3",
    "google",
    "kubernetes_asyncio",
    "numba",
    "numpy",
    "ortools",
    "pandas",
    "pynvml",
)

DOORS = ("federator_agent.data.s3",)
"""Imported only when a job names an address that needs it; without the extra, that job is told what is missing."""


def test_wheel_contains_the_four_packages_only(tmp_path: Path) -> None:
    """A stray top-level name would overwrite another project's package without a word."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == TOP_LEVEL

    wanted = {
        path.removeprefix(f"{Path(package).parent}/")
        for package in PACKAGES
        for path in tracked()
        if path.startswith(f"{package}/")
    }
    assert not wanted - names, "these files are under version control but not in the wheel"


def test_bare_agent_imports() -> None:
    """A site that installs the core only must still get an agent: no import may pull in what an extra brings."""
    program = textwrap.dedent(f"""
        import importlib.abc, pkgutil, sys

        class Absent(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {HEAVY!r}:
                    raise ModuleNotFoundError(f"{{name}} is not part of a bare agent", name=name)

        sys.meta_path.insert(0, Absent())
        import federator_agent
        for module in pkgutil.walk_packages(federator_agent.__path__, "federator_agent."):
            if module.name not in {DOORS!r}:
                __import__(module.name)
            print(module.name)
    """)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "federator_agent.core" in finished.stdout


def test_command_line_starts_without_the_solver() -> None:
    """Users install the client only: `federator submit` must not ask for OR-Tools."""
    program = (
        f"import sys; import federator.__main__; sys.exit(any(name in sys.modules for name in {HEAVY!r}))"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, (
        finished.stderr or "importing federator.__main__ brings in a heavy library"
    )


@pytest.mark.parametrize("role", ROLES)
def test_locks_of_the_roles_have_what_their_extras_ask_for(role: str) -> None:
    """An image that lacks a package starts, and fails with the first job that needs it."""
    project = tomllib.loads(text("pyproject.toml"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in ROLES[role] for each in project["optional-dependencies"][extra]),
    ]
    locked, tried = (
        dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text(f"requirements/{name}.txt"), re.MULTILINE))
        for name in (role, "dev")
    )
    assert not {re.split(r"[<>=\[;]", each)[0] for each in wanted} - locked.keys(), "run make lock"
    assert locked.items() <= tried.items(), (
        f"requirements/{role}.txt has versions that no test has seen: run make lock"
    )
