"""Runs a job in the container image that it names, on a bare host and under Slurm, by the program that the site has for that.

What comes out is a script for the host's shell, which becomes the program, which becomes the job: so signals, exit codes, logs and the agent's death are those of any rank.
The program has the environment of the site; the job's comes by a descriptor and is taken up inside the container, where no variable of it has a say over the program.
"""

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from federator.model.jobs import JobSpec
from federator_agent.staging_errors import StagingRefused

NONE = "none"
KILL_S = 5
GIVEN = 3
"""The descriptor by which the job's variables come in: the first that podman passes on."""
_ENTRYPOINT = f'given=$(cat <&{GIVEN}) || exit 74; exec {GIVEN}<&-; eval "$given"; unset given; exec "$@"'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRANSPORTS = frozenset(
    {
        "containers-storage", "dir", "docker", "docker-archive", "docker-daemon", "http", "https", "instance", "library", "oci",
        "oci-archive", "oras", "ostree", "shub", "sif", "tarball",
    }
)  # fmt: skip
"""What the programs take for another place than a registry, such as a directory of the host."""
_PACKAGES = {"podman": "podman and catatonit", "apptainer": "apptainer", "enroot": "enroot"}
_OWN_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


_WHO_STARTS_IT = """set -- "--user=$(id -u):$(id -g)"
[ "$(id -u)" = 0 ] || set -- "$@" --userns=keep-id
"""
_DEVICES = """for each in $(printf %s "${CUDA_VISIBLE_DEVICES-}" | tr , ' '); do set -- "$@" --device "nvidia.com/gpu=$each"; done
"""


class Engine(StrEnum):
    """Programs that run images."""

    PODMAN = "podman"
    APPTAINER = "apptainer"
    ENROOT = "enroot"


class Pull(StrEnum):
    """When an image is asked for at its registry."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


class Images(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By which program jobs run in the `image` that they name."""

    engine: Engine
    """The program."""
    pull: Pull = Pull.MISSING
    """When an image is asked for at its registry. Of podman; the others look into their own cache."""


class Contained(NamedTuple):
    """What is to run. Paths are the same inside as outside."""

    name: str
    """Of the container, which no other has."""
    image: str
    command: Sequence[str]
    work: Path
    writable: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    user: str = ""
    """`uid:gid`; empty: who starts it, who is no root then."""
    gpus: bool = False
    shm_mib: int = 0


def images_of(written: str | Images | None) -> Images | None:
    """`images: podman`, or a mapping with `engine`; None for `none`."""
    if isinstance(written, str):
        return None if written == NONE else Images(engine=Engine(written))
    return written


def refuse(images: Images | None, spec: JobSpec) -> None:
    """Raises `StagingRefused` for a job whose image cannot be run at a site of these."""
    if spec.image is msgspec.UNSET:
        return
    if images is None:
        raise StagingRefused(f"this site runs no containers, and the job wants the image {spec.image}")
    if spec.setup is not None:
        raise StagingRefused("a job with an image can have no set-up here: do it in the image, or in run")
    first, _, rest = spec.image.partition(":")
    if first in _TRANSPORTS or ("/" in rest and not re.match(r"\d+/", rest) and "@" not in first):
        raise StagingRefused(f"{spec.image} is not the name of an image at a registry")


def script(images: Images, run: Contained) -> str:
    """For `/bin/sh`, with the job's variables on descriptor `GIVEN` and, where it has GPUs, their numbers in CUDA_VISIBLE_DEVICES."""
    makers = {Engine.PODMAN: _podman, Engine.APPTAINER: _apptainer, Engine.ENROOT: _enroot}
    inside = shlex.join(["/bin/sh", "-c", _ENTRYPOINT, "sh", *run.command])
    return makers[images.engine](images, run, inside)


def _podman(images: Images, run: Contained, inside: str) -> str:
    """It passes signals on to its container, whose first process is an init: a command that is number 1 would not die of them. It stays in the control
    group that it is started in, so the limits of the rank are those of the container.
    """
    words = [
        "podman", "run", "--rm", "--replace", f"--name={run.name}", f"--pull={images.pull}", "--init", "--cgroups=disabled", "--network=host",
        "--log-driver=none", "--preserve-fds=1", "--cap-drop=all", "--security-opt=no-new-privileges", f"--shm-size={run.shm_mib}m",
        f"--workdir={run.work}", "--entrypoint=",
        *(f"--volume={path}:{path}" for path in (run.work, *run.writable)),
        *(f"--volume={path}:{path}:ro" for path in run.readable),
    ]  # fmt: skip
    who = f"set -- --user={run.user}\n" if run.user else _WHO_STARTS_IT
    return (
        f'{who}{_DEVICES if run.gpus else ""}exec {shlex.join(words)} "$@" {shlex.quote(run.image)} {inside}'
    )


def beside(images: Images, run: Contained, *, tty: bool) -> str:
    """For `/bin/sh`, as `script`: a command beside that of a container that runs. Podman takes it in. The others run it in a container of its own: of the same image, with the same folders, devices and network, and what else is written there is not shared."""
    if images.engine is Engine.PODMAN:
        return f"exec {_inside_podman(run.name, run.work, run.command, tty=tty)}"
    return script(images, run)


def enter(name: str, work: Path, command: Sequence[str], *, tty: bool) -> str:
    """The same in a container that podman runs, for who has to end the command: it first says its number there."""
    return f"exec {_inside_podman(name, work, command, tty=tty, first='echo $$; ')}"


def _inside_podman(name: str, work: Path, command: Sequence[str], *, tty: bool, first: str = "") -> str:
    words = ["podman", "exec", "--interactive", "--preserve-fds=1", f"--workdir={work}"]
    words += ["--tty"] if tty else []
    return shlex.join([*words, name, "/bin/sh", "-c", f"{first}{_ENTRYPOINT}", "sh", *command])


def hang_up(name: str, number: int) -> list[str]:
    """What tells such a command to end, and kills it where it does not."""
    group = f'kill -s HUP -- "-$1" || kill -s HUP "$1"; sleep {KILL_S}; kill -s KILL -- "-$1" || kill -s KILL "$1"'
    return ["podman", "exec", name, "/bin/sh", "-c", f"{{ {group}; }} 2>/dev/null", "sh", str(number)]


def _apptainer(images: Images, run: Contained, inside: str) -> str:
    """It becomes the command itself, as the user who starts it."""
    del images
    words = ["apptainer", "exec", "--cleanenv", "--contain", "--no-home", f"--pwd={run.work}"]
    words += [f"--bind={path}:{path}" for path in (run.work, *run.writable)]
    words += [f"--bind={path}:{path}:ro" for path in run.readable]
    words += ["--nv"] if run.gpus else []
    seen = 'export APPTAINERENV_CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-}"\n' if run.gpus else ""
    start = shlex.join([*words, f"docker://{run.image}"])
    return f"{seen}exec {_as_user(run)}{start} {inside}"


def _enroot(images: Images, run: Contained, inside: str) -> str:
    """It starts files that it has made of images, which its user keeps."""
    del images
    words = ["enroot", "start", "--rw"]
    words += [f"--mount={path}:{path}:none:x-create=dir,bind,rw" for path in (run.work, *run.writable)]
    words += [f"--mount={path}:{path}:none:x-create=dir,bind,ro" for path in run.readable]
    seen = 'export NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"\n' if run.gpus else ""
    registry, slash, rest = run.image.partition("/")
    is_registry = slash and ("." in registry or ":" in registry or registry == "localhost")
    where = f"docker://{registry}#{rest}" if is_registry else f"docker://{run.image}"
    file = re.sub(r"[^A-Za-z0-9.-]", "+", run.image)
    keep = (
        'kept=${ENROOT_DATA_PATH:-$HOME/.local/share/enroot}; mkdir -p "$kept" || exit 74\n'
        f'image=$kept/{file}.sqsh\n[ -e "$image" ] || '
        f'{{ enroot import -o "$image.$$" {shlex.quote(where)} && mv "$image.$$" "$image"; }} || exit 125\n'
    )
    work = shlex.join(["/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(run.work)])
    return f'{keep}{seen}exec {_as_user(run)}{shlex.join(words)} "$image" {work} {inside}'


def _as_user(run: Contained) -> str:
    """Of programs that run as who starts them."""
    if not run.user:
        return ""
    uid, _, gid = run.user.partition(":")
    return f"setpriv --reuid={uid} --regid={gid} --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all -- "


def given(environment: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """The variables that go into the container: not those of the host, whose paths mean nothing there."""
    own = {
        name: value
        for name, value in environment.items()
        if value != base.get(name) and name not in _OWN_DEVICES and _NAME.fullmatch(name)
    }
    return {"HOME": "/tmp", "USER": "job", "LOGNAME": "job"} | own  # noqa: S108 - of its own image


def fetch(images: Images, image: str) -> str:
    """For `/bin/sh`: have the image here before its job starts; empty: it comes with the start."""
    if images.engine is not Engine.PODMAN:
        return ""
    there, pull = (
        shlex.join(["podman", *words, image]) for words in (("image", "exists"), ("pull", "--quiet"))
    )
    return {
        Pull.MISSING: f"{there} || exec {pull}",
        Pull.ALWAYS: f"exec {pull}",
        Pull.NEVER: f"{there} || {{ echo 'it is not on this host, which asks no registry' >&2; exit 125; }}",
    }[images.pull]


def cleanup(images: Images, name: str) -> list[str]:
    """What removes that container, should it be there; empty: nothing stays."""
    return ["podman", "rm", "--force", "--ignore", "--time=0", name] if images.engine is Engine.PODMAN else []


def notes(images: Images | None, path: str) -> list[str]:
    """Lines for `federator-agent check`. `path`: where programs are looked for."""
    found = [engine for engine in Engine if shutil.which(engine, path=path)]
    if images is None:
        if not found:
            return [
                "ok    jobs that name an image are not taken: neither podman, apptainer nor enroot is installed"
            ]
        return [
            f"ok    jobs that name an image are not taken; to take them, write 'images: {found[0]}' ({', '.join(found)} is installed)"
        ]
    if images.engine not in found:
        return [
            f"images: {images.engine} cannot be found in {path}; install {_PACKAGES[images.engine]}, or write 'images: none'"
        ]
    places = f"{path}:/usr/libexec/podman:/usr/lib/podman"
    if images.engine is Engine.PODMAN and shutil.which("catatonit", path=places) is None:
        return ["images: podman needs an init for containers; install catatonit"]
    return [f"ok    jobs that name an image run in it, by {images.engine}"]
