"""The launchers of frameworks: `framework: ray` around a command becomes what each rank of the job runs.

A launcher is a template beside this module: a script of the rank's shell, or a program of its Python, that gets the job's command as arguments. It reads nothing
but the variables that every rank has, so that one text does for all ranks, runtimes and forms of the job. It is put round the command once, when the job file is
read, and the job's record has both. Agents run what is recorded: no version of theirs is another launcher.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from federator.kernel.errors import Invalid
from federator.model.jobs import FIRST, Framework

Name = Literal["torchrun", "deepspeed", "mpi", "tensorflow", "ray", "dask", "spark"]


class FrameworkFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The framework that the command is written for, and how its launcher starts it."""

    name: Name
    """Which one."""
    processes: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """For `torchrun`, `deepspeed` and `mpi`: how many processes each rank has. Left out: one for each GPU, and one without any."""
    restarts: Annotated[int, Meta(ge=0, le=1000)] = 0
    """For `torchrun`: how often it starts all processes again, from what they have saved, when one of them has failed. The job's ranks stay."""


class _Launcher(NamedTuple):
    """How one framework is started."""

    parts: tuple[str, ...]
    """Its template, in files of this folder."""
    options: tuple[str, ...] = ()
    """What of `FrameworkFile` it takes."""
    success: str = ""
    """Whose end is the job's; empty: that of all ranks."""
    before: tuple[str, ...] = ()
    """Arguments that go before the command."""


_LAUNCHERS: Mapping[str, _Launcher] = {
    "torchrun": _Launcher(("torchrun.sh",), ("processes", "restarts"), before=("--no-python",)),
    "deepspeed": _Launcher(("deepspeed.sh",), ("processes",)),
    "mpi": _Launcher(("meeting.py.txt", "mpi.py.txt"), ("processes",), FIRST),
    "tensorflow": _Launcher(("meeting.py.txt", "tensorflow.py.txt")),
    "ray": _Launcher(("cluster.sh", "ray.sh"), (), FIRST),
    "dask": _Launcher(("cluster.sh", "dask.sh"), (), FIRST),
    "spark": _Launcher(("cluster.sh", "spark.sh"), (), FIRST),
}
NAMES: tuple[str, ...] = get_args(Name)
_TEMPLATES = {
    name: "".join((Path(__file__).parent / part).read_text() for part in launcher.parts)
    for name, launcher in _LAUNCHERS.items()
}
"""Read once: an upgrade that replaces the files under a running dispatcher must not mix their versions."""
GROUPS = tuple((Path(__file__).parent / part).read_text() for part in ("groups.sh", "groups_end.sh"))
"""The launcher of groups (`federator.wire.groups`): what stands before its lines, a line for each group, and what behind."""


def framework_of(written: Name | FrameworkFile, path: str) -> Framework:
    """As the record has it. Raises `Invalid` for an option that this framework does not have."""
    if not isinstance(written, FrameworkFile):
        return Framework(written)
    given = {"processes": written.processes or 0, "restarts": written.restarts}
    takes = _LAUNCHERS[written.name].options
    for option, value in given.items():
        if value and option not in takes:
            *others, last = (name for name in NAMES if option in _LAUNCHERS[name].options)
            having = f"{', '.join(others)} and {last}" if others else last
            raise Invalid(
                f"{written.name} has no such option",
                field=f"{path}.{option}",
                remedy=f"leave it out; it is for {having}",
            )
    return Framework(written.name, **given)


def success_of(framework: Framework) -> str:
    """Whose end is the job's, with that launcher; empty: that of all ranks."""
    return _LAUNCHERS[framework.name].success


def launch_of(framework: Framework, command: tuple[str, ...]) -> tuple[str, ...]:
    """What each rank runs, as an argument vector: the launcher round `command`."""
    launcher, template = _LAUNCHERS[framework.name], _TEMPLATES[framework.name]
    if launcher.parts[0].endswith(".sh"):
        options = "".join(f"{option}={getattr(framework, option)}\n" for option in launcher.options)
        return (
            "/bin/sh",
            "-c",
            options + template,
            f"federator-{framework.name}",
            *launcher.before,
            *command,
        )
    arguments = (str(getattr(framework, option)) for option in launcher.options)
    return ("python3", "-c", template, *arguments, *command)
