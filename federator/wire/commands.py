"""What a job file tells to run: a script for the shell, or a program and its arguments."""

import re
from pathlib import PurePosixPath
from typing import Annotated

from msgspec import Meta

from federator.kernel.errors import Invalid
from federator.wire import fields
from federator.wire.fields import Text, written

_LAUNCHERS = {
    "python", "python3", "bash", "sh", "env", "exec", "time", "nice", "torchrun", "accelerate", "srun", "mpirun", "uv",
}  # fmt: skip
"""Programs that start the one that a job is about."""


def _argument(value: object, path: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(fields.number(value, path))
    if isinstance(value, str):
        return fields.plain(value, path)
    raise Invalid("is not a text", field=path, remedy="quote it, so that it is passed on as it is written")


Run = Annotated[Text, Meta(examples=["python train.py"])]
Command = tuple[Annotated[str, written(_argument, type=["string", "integer"])], ...]


def check_one(run: str | None, command: tuple[str, ...] | None, path: str) -> None:
    """Exactly one of the two tells what to run. Raises `Invalid`."""
    if (run is None) == (command is None):
        raise Invalid(
            "both run and command are given" if run else "nothing to run",
            field=f"{path}.run",
            remedy="write exactly one of 'run: python train.py' and 'command: [python, train.py]'",
        )
    if command is not None and not (command and command[0]):
        raise Invalid("names no program", field=f"{path}.command", remedy="write at least one word")


def default_name(run: str | None, command: tuple[str, ...] | None) -> str:
    """A name for a job that has none: that of its program or script, as `train` for `python train.py --lr 0.1`."""
    words = (run or " ".join(command or ())).split()[:20]
    program = next((word for word in words if _names_program(word)), "")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(program).stem)[:40].strip("._-")
    return stem or "job"


def _names_program(word: str) -> bool:
    return (
        PurePosixPath(word).name not in _LAUNCHERS
        and not word.startswith("-")
        and "=" not in word
        and word[:1] not in "'\"$({#;"
    )
