"""Options that say what a job is, the same for `run`, `submit` and `preview`: each goes before what the file says."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from federator.cli.phrases import moment_at
from federator.cli.sbatch_values import licenses_of
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_instant

ASKS = Group("Job", sort_key=10)
NO_FOLDER = Path("none")
RESOURCES = ("gpus", "cpus", "memory")


@Parameter(name="*", group=ASKS)
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What the command line says of a job."""

    gpus: Annotated[
        str | None,
        Parameter(help="GPUs per node: 4, A100:4, A100:80GB:4, A100|H100:4, or a range as A100:1..8."),
    ] = None
    nodes: Annotated[int | None, Parameter(help="Nodes of a gang, which start together.")] = None
    min_nodes: Annotated[int | None, Parameter(help="It may run on fewer.")] = None
    max_nodes: Annotated[int | None, Parameter(help="It may run on more.")] = None
    framework: Annotated[
        str | None,
        Parameter(
            help="What the command is written for: torchrun, deepspeed, mpi, tensorflow, ray, dask or spark."
        ),
    ] = None
    cpus: Annotated[float | None, Parameter(help="CPU cores per node.")] = None
    memory: Annotated[str | None, Parameter(help="Memory per node, such as 64GiB.")] = None
    image: Annotated[
        str | None, Parameter(help="Container image that it runs in, at sites that run containers.")
    ] = None
    setup: Annotated[
        str | None,
        Parameter(help="Script that prepares its folder, such as 'pip install -r requirements.txt'."),
    ] = None
    workdir: Annotated[Path | None, Parameter(help="Folder to take along; `none` for none.")] = None
    env: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="NAME=VALUE for its environment; may be given several times.",
        ),
    ] = ()
    outputs: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="Files to collect at the end, such as 'results/**'; fetch them with `federator download`.",
        ),
    ] = ()
    site: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="Only at this site, where you have a reason to choose; may be given several times.",
        ),
    ] = ()
    name: Annotated[str | None, Parameter(help="Name of the job; else that of the program.")] = None
    queue: Annotated[str | None, Parameter(help="Path of the queue; else your default one.")] = None
    priority: Annotated[int | None, Parameter(help="0 to 100.")] = None
    deadline: Annotated[
        str | None,
        Parameter(help="When it should be done: 2h from now, 18:00 here, or 2026-12-01T08:00:00Z."),
    ] = None
    estimate: Annotated[str | None, Parameter(help="How long it will probably run, such as 90m.")] = None
    max_duration: Annotated[str | None, Parameter(help="Killed after this, such as 4h.")] = None
    max_cost: Annotated[str | None, Parameter(help="What it may cost at most, such as '40 USD'.")] = None
    array: Annotated[
        str | None, Parameter(help="One job for each index: 0-99, 0-99:5, or 0-99%4 for four at once.")
    ] = None
    after: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="It starts after this job: NAME once that has succeeded, or any:NAME, failed:NAME, each:NAME; may be given several times.",
        ),
    ] = ()

    licenses: Annotated[
        str | None,
        Parameter(help="Floating licences that it holds while it runs, such as matlab:2,ansys."),
    ] = None

    notify: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="Tell you of it: start, end, fail, deadline-at-risk or idle-gpus; may be given several times.",
        ),
    ] = ()

    def fields(self) -> dict[str, object]:
        """As fields of a job file, but for the folder. Raises `Invalid`."""
        plain = (
            "nodes",
            "min_nodes",
            "max_nodes",
            "framework",
            "image",
            "setup",
            "name",
            "queue",
            "priority",
            "estimate",
            "max_duration",
            "max_cost",
            "array",
        )
        given: dict[str, object] = {name: getattr(self, name) for name in plain}
        given["resources"] = {
            name: getattr(self, name) for name in RESOURCES if getattr(self, name) is not None
        }
        given["placement"] = {"sites": list(self.site)} if self.site else {}
        given["env"] = dict(_assignment(word) for word in self.env)
        given["outputs"] = list(self.outputs)
        given["notify"] = [each.strip() for word in self.notify for each in word.split(",")]
        given["deadline"] = _instant(self.deadline) if self.deadline else None
        given["after"] = _after(self.after)
        given["licenses"] = _licenses(self.licenses) if self.licenses else None
        return {name: value for name, value in given.items() if value not in (None, [], {})}

    def check(self) -> None:
        """Raises `Invalid` for what could be in no job file."""
        from federator.wire.jobfile import read_job

        read_job({"run": "true", **self.fields()}, now=0.0)

    def over(self, document: Mapping[str, object]) -> dict[str, object]:
        """A job file with what is said here put over it; `env`, `resources` and `placement` are joined. Raises `Invalid`."""
        given = self.fields()
        joined = {**document, **given}
        for name in ("resources", "env", "placement"):
            before, more = document.get(name), given.get(name)
            if isinstance(before, Mapping) and isinstance(more, Mapping):
                if name == "resources" and (other := {"any_of", "ordered"} & set(before)):
                    raise Invalid(
                        f"the file offers several in resources.{other.pop()}",
                        field=f"--{next(iter(more))}",
                        remedy="change them in the file",
                    )
                joined[name] = {**before, **more}
        if "deadline" in given:
            joined.pop("finish_within", None)
        if self.workdir == NO_FOLDER:
            joined.pop("workdir", None)
        elif self.workdir is not None:
            joined["workdir"] = str(self.workdir.absolute())
        return joined


AS_WRITTEN = JobOptions()


def _assignment(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise Invalid(f"{word!r} gives no value", field="--env", remedy="write NAME=VALUE")
    return name, value


def _instant(text: str) -> str:
    """As a job file has it."""
    return format_instant(moment_at(text, "--deadline", time.time(), ahead=True))


def _licenses(text: str) -> dict[str, int]:
    try:
        return licenses_of(text)
    except ValueError as error:
        raise Invalid(str(error), field="--licenses", remedy="write NAME:COUNT, such as matlab:2") from None


def _after(words: tuple[str, ...]) -> list[str] | dict[str, list[str]]:
    if not any(":" in word for word in words):
        return list(words)
    found: dict[str, list[str]] = {}
    for word in words:
        how, colon, name = word.partition(":")
        found.setdefault(how if colon else "ok", []).append(name if colon else how)
    return found
