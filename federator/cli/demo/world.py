"""What the demonstration is made of: its sites, policies, offers and jobs, read from the YAML files beside this module.

They are data, so that a reader sees all there is to see: nothing in the code says that a job bursts. The two changes that a user can
ask for are made here too: taking all deadlines away, and tightening one.
"""

import copy
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import msgspec

from federator.kernel.errors import Invalid
from federator.wire.commands import default_name
from federator.wire.fields import duration_s
from federator.wire.yamltext import read_document, read_documents, write_document

PROVIDER = "rented"
CLOUD_SITE = "cloud"
BOOT_DELAY = "8m"
OFFERS = ("g6.xlarge", "a2-highgpu-1g", "a2-highgpu-4g", "p4d.24xlarge")
"""Machine types from the local provider's catalogue, which has real list prices and says where they are from."""
DEADLINE_KEYS = ("deadline", "finish_within")

Document = dict[str, Any]
"""A decoded YAML document."""


class DemoJob(msgspec.Struct, frozen=True):
    """One submission: who makes it, when, and the job file. An array is one submission of several jobs."""

    by: str
    job: Document
    after_minutes: float = 0.0

    @property
    def name(self) -> str:
        """The name that the job will have."""
        run = self.job.get("run")
        return str(self.job.get("name") or default_name(run, None))


class DemoWorld(msgspec.Struct, frozen=True):
    """Everything that the demonstration starts with."""

    sites: tuple[Document, ...]
    policies: tuple[Document, ...]
    jobs: tuple[DemoJob, ...]

    @property
    def policy_text(self) -> str:
        """The policies as a text that can be applied, and is read in the console."""
        return "---\n".join(write_document(document) for document in self.policies)


def load_world() -> DemoWorld:
    """The world as the files have it."""
    return DemoWorld(
        sites=tuple(_read("sites.yaml")),
        policies=tuple(each.value for each in read_documents(_text("policies.yaml"))),  # type: ignore[misc]
        jobs=tuple(msgspec.convert(each, DemoJob) for each in _read("jobs.yaml")),
    )


def without_deadlines(world: DemoWorld) -> DemoWorld:
    """The same work and rules, but nothing is ever due: no job's deadline, no queue's deadline budget."""
    jobs = tuple(_with(job, drop=DEADLINE_KEYS) for job in world.jobs)
    policies = copy.deepcopy(world.policies)
    for document in policies:
        document["spec"].pop("deadline_budget", None)
    return msgspec.structs.replace(world, jobs=jobs, policies=policies)


def tightened(world: DemoWorld, given: str) -> DemoWorld:
    """`JOB=DURATION`: the same world, but that job is due so soon after it was submitted. Raises `Invalid`."""
    name, _, within = given.partition("=")
    if not name or not within:
        raise Invalid(
            f"{given!r} is not JOB=DURATION", field="--tighten", remedy="write for example nightly-embed=30m"
        )
    duration_s(within, "--tighten")
    names = [job.name for job in world.jobs]
    if name not in names:
        raise Invalid(
            f"there is no job {name!r}", field="--tighten", remedy=f"name one of {', '.join(sorted(names))}"
        )
    due = {"finish_within": within}
    jobs = [_with(job, drop=DEADLINE_KEYS, add=due) if job.name == name else job for job in world.jobs]
    return msgspec.structs.replace(world, jobs=tuple(jobs))


def provider_settings(folder: Path, command: tuple[str, ...]) -> Document:
    """The burst provider of the dispatcher's settings: machines that are process trees below `folder`."""
    return {
        "type": "local",
        "site": CLOUD_SITE,
        "settings": {
            "state_dir": str(folder),
            "command": list(command),
            # All of it is one person's, and its jobs note what they do in one journal.
            "env": {"FEDERATOR_ISOLATION": "shared"},
            "offers": [
                {"instance_type": name, "boot_delay": BOOT_DELAY, "max_instances": 2} for name in OFFERS
            ],
        },
    }


def copy_work(into: Path) -> None:
    """Put the jobs' work directory somewhere on disk."""
    into.mkdir()
    with as_file(files(__package__) / "work" / "train.py") as script:
        (into / "train.py").write_bytes(script.read_bytes())


def _with(job: DemoJob, *, drop: tuple[str, ...], add: Mapping[str, object] | None = None) -> DemoJob:
    kept = {key: value for key, value in job.job.items() if key not in drop}
    return msgspec.structs.replace(job, job=kept | dict(add or {}))


def _read(name: str) -> list[Document]:
    documents = read_document(_text(name)).value
    assert isinstance(documents, list), name
    return documents


def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
