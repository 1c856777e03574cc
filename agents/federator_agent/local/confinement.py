"""Turns what a job asks to run into what the agent starts: as another user, and in namespaces of its own.

bubblewrap is the launcher: a small program of others' that makes namespaces and mounts, and nothing else. It makes a process namespace, so that a job sees and signals only its own processes
and all of them end with it, and a view of the file system without the agent's state, its home, other placements and other GPUs. What runs before the user is changed or the namespaces stand
runs with the agent's environment alone: the job's comes by a descriptor, and is taken up last. So no variable of a job's (`LD_PRELOAD`, `PATH`) has a say outside.
"""

import contextlib
import functools
import logging
import os
import pwd
import re
import secrets as chance
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from federator.kernel.errors import Invalid
from federator.model.whose import in_words
from federator_agent import job_folders
from federator_agent.local import cgroups, nodes
from federator_agent.local.isolation import Isolation, Mode, UnixUser, account_of, device_groups

GIVEN_DESCRIPTOR = 8
"""On which a rank is given its variables."""
FIRST_NAMESPACE = 3
"""The first descriptor of those by which a command finds the namespaces of the rank that it joins."""
OWNER = "owner"
"""In place of a namespace of /proc: the user namespace that the others belong to."""
_DOORS = (("mount", "mnt"), ("pid", "pid"), ("ipc", "ipc"))
USER_DATA_VARIABLE = "FEDERATOR_USER_DATA_FILE"
"""Names what a rented machine was given, which may have a join token in it."""
PROBE_WITHIN_S = 20.0
TMP = "/tmp"  # noqa: S108 - of the job's own view
OPEN_TO_ALL = (Path("/dev/shm"), Path("/run/lock"))  # noqa: S108 - likewise
"""Where everybody on a host may write, and each job has folders of its own. Beside /tmp and /var/tmp, and what else is found below `/var`."""
QUEUES = Path("/dev/mqueue")
"""A view of the POSIX message queues of one IPC namespace."""
VAR = Path("/var")
MPS = Path(TMP, "nvidia-mps")
"""Where CUDA finds the server by which processes share a GPU."""
RUN_STAYS = (
    "systemd/resolve", "resolvconf", "NetworkManager/resolv.conf", "nscd", "nvidia-persistenced", "nvidia-fabricmanager", "munge",
    "current-system", "opengl-driver",
)  # fmt: skip
"""Of /run, what programs need and nobody's rights hang on. The sessions of users, and services such as docker, have sockets there by which a job could start programs outside."""
_OUTPUTS = 2
"""The last descriptor of a process that it is meant to have."""
_NO_DEVICES = re.compile(
    r"pts|ptmx|tty\d*|vcs.*|console|shm|mqueue|fd|std(in|out|err)|core|null|zero|full|u?random|log|initctl"
)
"""Of /dev: terminals, shared memory, ways to the host's programs, and what bubblewrap makes anew."""
_SIGNALS = "HUP,INT,QUIT,USR1,USR2,TERM"
"""Those that a job may be sent. What stands round it lives on to tell of its end."""
_TAKE_UP = (
    'ulimit -u "$1" 2>/dev/null || ulimit -p "$1" || exit 74; shift; '
    f'. /proc/self/fd/{GIVEN_DESCRIPTOR}; exec {GIVEN_DESCRIPTOR}<&-; exec "$@"'
)
"""Bounds processes, by the one letter or the other as shells have it; takes up the variables; becomes the command. Starts no program for that: each takes half a millisecond."""
PROGRAMS = ("bin", "shims", "condabin")
BESIDE_PROGRAMS = ("lib", "lib64", "libexec", "include", "versions", "pyvenv.cfg")
log = logging.getLogger("federator_agent.local")


class Place(NamedTuple):
    """Where a rank, or a set-up, works, and what it may see beside the host's programs. `own`: the folder of the agent's that holds all of it."""

    own: Path
    work: Path
    owner: str = ""
    """Whose job it is; empty: not said."""
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    gpus: tuple[int, ...] = ()
    shares: bool = False
    """Its GPU is shared."""

    @property
    def temporary(self) -> Path:
        """Its own /tmp, and its home where its user has none."""
        return self.own / "tmp"


class Launch(NamedTuple):
    """What a shim is to run, the environment of the shim, and what is given to the command by a descriptor."""

    command: list[str]
    environment: dict[str, str]
    given: dict[str, str] | None = None
    log_owner: int | None = None
    """The user who may open the rank's log anew, as programs do that write to /dev/stderr."""


class Confinement:
    """How the jobs of one agent are kept apart, in one mode. `directory`: its state; `hidden`: further files that no job may read."""

    def __init__(
        self, mode: Mode, isolation: Isolation, directory: Path, hidden: Sequence[Path] = (), why: str = ""
    ) -> None:
        self.mode = mode
        self.isolation = isolation
        self.why = why
        """Why it is not a stronger one, for people."""
        self._directory = directory.resolve()
        user_data = os.environ.get(USER_DATA_VARIABLE, "")
        self._hidden = (*hidden, *((Path(user_data).absolute(),) if user_data else ()))
        self._parents = (
            cgroups.parents() if isolation.limits else cgroups.Parents(why="isolation.limits is false")
        )
        self._taken: set[int] = set()
        first, last = isolation.range
        self._next = first + chance.randbelow(last - first + 1)

    @property
    def apart(self) -> bool:
        """Whether anything stands between jobs."""
        return self.mode is not Mode.SHARED_TRUST

    def describe(self) -> str:
        """The mode and what it means, for who installs the agent."""
        first, last = self.isolation.range
        match self.mode:
            case Mode.USERS:
                mapped = "".join(f"{owner} as {name}, " for owner, name in self.isolation.users.items())
                return f"users: jobs run as users of their own ({mapped}others as one of {first}-{last}), each in namespaces of its own"
            case Mode.SANDBOX:
                return "sandbox: jobs run as this user, each in namespaces of its own"
        trusts = self.isolation.trusts
        whose = in_words(trusts) if trusts else "the administrators of the federation and of the site"
        return f"shared-trust ({self.why}): any job can read this agent's key and alter other jobs, so only work of these is taken: {whose}"

    def describe_limits(self) -> str:
        """Whether what a rank is given limits it, for who installs the agent."""
        if self.limits:
            return "limits: memory as a job asks, CPUs by weight, processes"
        return f"limits: memory and CPUs of jobs are not limited: {self._parents.why}"

    @property
    def limits(self) -> bool:
        """Whether ranks have control groups of their own."""
        return bool(self._parents.by_controller)

    def limited(
        self, launch: Launch, directory: Path, cpus_milli: int, memory_mib: int, name: str = ""
    ) -> Launch:
        """In control groups of the rank, or the set-up, whose directory that is. `name`: of the groups, which no other has. Raises `OSError`."""
        if not self.limits:
            return launch
        limits = cgroups.Limits(cpus_milli, memory_mib, self.isolation.processes)
        directory.mkdir(parents=True, exist_ok=True)
        name = f"federator-{name or f'{directory.parent.name}-{directory.name}'}"
        return launch._replace(
            command=[*cgroups.make(self._parents, directory, name, limits), *launch.command]
        )

    def launch(
        self, place: Place, command: list[str], environment: dict[str, str], base: dict[str, str]
    ) -> Launch:
        """What to start. `environment`: the command's, which holds whatever a job likes; `base`: the agent's own part of it. Raises `OSError`."""
        if not self.apart:
            return Launch(command, environment)
        account = self._account(place) if self.mode is Mode.USERS else None
        argv = [_program("env"), f"--ignore-signal={_SIGNALS}", _program("bwrap"), *self._view(place)]
        argv += ["--", *_as_user(account)]
        argv += [_program("env"), f"--default-signal={_SIGNALS}"]
        argv += ["/bin/sh", "-c", _TAKE_UP, "sh", str(self.isolation.processes), *command]
        # What a job says itself of its home goes before.
        own = {name: value for name, value in environment.items() if value != base.get(name)}
        given = environment | _identity(account) | own
        return Launch(argv, base, given, account.uid if account else None)

    def beside(
        self,
        place: Place,
        command: list[str],
        environment: dict[str, str],
        base: dict[str, str],
        *,
        tty: bool,
    ) -> Launch:
        """What to start beside a rank that runs: as its user, and where it is kept apart in its namespaces, which it finds by descriptors from `FIRST_NAMESPACE` on. With `tty`, what it reads is its terminal. Raises `OSError`."""
        go = [_program("env"), f"--chdir={place.work}", "--default-signal"]
        if not self.apart:
            return Launch([*go, *command], environment)
        lead = [_program("setsid"), *(["--ctty"] if tty else []), "--"]
        account = self._account(place) if self.mode is Mode.USERS else None
        doors = [
            f"--{word}=/proc/self/fd/{number}" for number, (word, _) in enumerate(self.doors, FIRST_NAMESPACE)
        ]
        keep = [] if account else ["--preserve-credentials"]
        argv = []
        for at_once in (doors[:-1], doors[-1:]) if self._nests else (doors,):
            argv += [_program("nsenter"), *keep, *at_once, "--"]
        argv += [*(_as_user(account) or [_program("setpriv"), "--no-new-privs", "--"]), *lead, *go]
        closed = " ".join(
            f"{number}<&-" for number in range(FIRST_NAMESPACE, FIRST_NAMESPACE + len(self.doors))
        )
        argv += ["/bin/sh", "-c", f"exec {closed}; {_TAKE_UP}", "sh", str(self.isolation.processes), *command]
        own = {name: value for name, value in environment.items() if value != base.get(name)}
        return Launch(argv, base, environment | _identity(account) | own)

    @property
    def doors(self) -> tuple[tuple[str, str], ...]:
        """The namespaces of a rank: as nsenter has them, and as /proc does."""
        if self.mode is Mode.SANDBOX:
            return (("user", OWNER), *_DOORS, *((("user", "user"),) if self._nests else ()))
        return _DOORS if self.apart else ()

    @property
    def _nests(self) -> bool:
        """Whether what runs is in a user namespace below that of its mounts: bubblewrap is root in the outer one, and in the inner one who it was."""
        return self.mode is Mode.SANDBOX and os.geteuid() != 0

    def own(self, place: Place, *, fresh: bool = False) -> None:
        """Before anything of it runs: make its folders, and have them belong to its user. Walks all files. Raises `OSError`."""
        if not self.apart:
            return
        place.temporary.mkdir(parents=True, exist_ok=True)
        for folder in (place.work, *place.writable):
            folder.mkdir(parents=True, exist_ok=True)
        if self.mode is not Mode.USERS:
            return
        account = self._new_account(place) if fresh else self._account(place)
        for folder in (place.work, place.temporary, *place.writable):
            job_folders.give(folder, account.uid, account.gid)
        for folder in place.readable:
            job_folders.let_read(folder)

    def release(self, work: Path) -> None:
        """Nothing runs there any more, and the folder goes: its user is free."""
        with contextlib.suppress(OSError):
            self._taken.discard(work.lstat().st_uid)

    def hides_gpus(self, gpus: tuple[int, ...]) -> bool:
        """Whether a job that has these sees no others, and so knows them by other numbers."""
        return self.apart and bool(nodes.others(gpus))

    # Who ------------------------------------------------------------------------------------------------------------

    def _account(self, place: Place) -> UnixUser:
        """The user that a work directory was given to."""
        mapped = self._mapped(place.owner)
        if mapped is not None:
            return mapped
        uid = place.work.lstat().st_uid
        if uid == os.geteuid():
            raise PermissionError(f"{place.work} has not been given to its user")
        return UnixUser(uid=uid, gid=uid, groups=device_groups())

    def _new_account(self, place: Place) -> UnixUser:
        mapped = self._mapped(place.owner)
        if mapped is not None:
            return mapped
        first, last = self.isolation.range
        taken = self._taken | _owners(self._directory)
        if len(taken) > last - first:
            raise PermissionError(f"all user ids of isolation.range, {first}-{last}, are in use")
        while self._next in taken:
            self._next = first + (self._next + 1 - first) % (last - first + 1)
        uid = self._next
        self._taken.add(uid)
        self._next = first + (uid + 1 - first) % (last - first + 1)
        return UnixUser(uid=uid, gid=uid, groups=device_groups())

    def _mapped(self, owner: str) -> UnixUser | None:
        name = self.isolation.users.get(owner)
        if name is None:
            return None
        try:
            return account_of(name)
        except KeyError:
            raise PermissionError(f"{name}, the account of {owner}, is not a user of this host") from None

    # What it sees -----------------------------------------------------------------------------------------------------

    def _view(self, place: Place) -> list[str]:
        """bubblewrap's arguments. Later ones lie over earlier ones."""
        view = ["--unshare-pid", "--unshare-ipc", "--die-with-parent"]
        if self.mode is Mode.SANDBOX:
            view += ["--unshare-user", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]
            view += ["--ro-bind", "/", "/", *_device_folder()]
        else:
            view += ["--dev-bind", "/", "/"]
        view += _of_its_own(OPEN_TO_ALL if self.mode is Mode.SANDBOX else (*open_to_all(VAR), *OPEN_TO_ALL))
        for home in homes():
            view += _empty(home)
            for program in programs_below(home):
                view += _shown("--ro-bind", program, home)
        for temporary in (TMP, f"/var{TMP}"):
            view += ["--bind", str(place.temporary), temporary]
        if place.shares:
            view += ["--bind-try", str(MPS), str(MPS)]
        for shared in map(Path, self.isolation.shared):
            view += _shown("--bind-try", shared, next(iter(shared.parents[-2:-1]), shared))
        view += _empty(self._directory)
        for folder in (place.work, *place.writable):
            view += _shown("--bind", folder, self._directory)
        for folder in place.readable:
            view += _shown("--ro-bind", folder, self._directory)
        for file in (*self._hidden, *nodes.others(place.gpus)):
            view += ["--ro-bind", "/dev/null", str(file)] if file.exists() else []
        return [*view, *_own_instances(place.gpus), "--proc", "/proc", "--chdir", str(place.work)]

    # Whether it works -------------------------------------------------------------------------------------------------

    def probe(self) -> str:
        """Start one thing as jobs are started. Why that cannot be; empty: it works."""
        folder = Path(tempfile.mkdtemp(prefix="probe-", dir=self._directory))
        place = Place(folder, folder / "work")
        try:
            self.own(place, fresh=True)
            launch = self.launch(
                place, ["/bin/sh", "-c", 'cd / && cd "$probe"'], {"probe": str(place.work)}, {}
            )
            return _tried(launch)
        except FileNotFoundError as error:
            return str(error)
        except (OSError, subprocess.SubprocessError) as error:
            return f"it cannot be started: {error}"
        finally:
            self.release(place.work)
            job_folders.remove(folder)


def shared(directory: Path = Path("/nonexistent")) -> Confinement:
    """None at all."""
    return Confinement(Mode.SHARED_TRUST, Isolation(mode=Mode.SHARED_TRUST, limits=False), directory)


def confinement(isolation: Isolation, directory: Path, hidden: Sequence[Path] = ()) -> Confinement:
    """As the site file says, or the strongest that works on this host. Raises `Invalid` for a mode that is asked for and does not work."""
    if isolation.mode is Mode.SHARED_TRUST:
        return Confinement(Mode.SHARED_TRUST, isolation, directory, why="the site file says so")
    best = Mode.USERS if os.geteuid() == 0 else Mode.SANDBOX
    if isolation.mode not in (None, best):
        who = "root" if isolation.mode is Mode.USERS else "an ordinary user"
        raise Invalid(
            f"the mode {isolation.mode} wants an agent that is {who}",
            field="$.isolation.mode",
            remedy=f"run the agent as {who}, or leave the mode out",
        )
    tried = Confinement(best, isolation, directory, hidden)
    why = tried.probe()
    if not why:
        return tried
    if isolation.mode is not None or isolation.users:
        field = "$.isolation.mode" if isolation.mode else "$.isolation.users"
        raise Invalid(
            f"jobs cannot be kept apart on this host: {why}",
            field=field,
            remedy="install bubblewrap; federator-agent check shows whether it works",
        )
    return Confinement(Mode.SHARED_TRUST, isolation, directory, why=why)


def keep_descriptors() -> None:
    """What this process was started with, beside its input and outputs, is passed on to nothing that it starts."""
    for each in Path("/proc/self/fd").iterdir():
        if int(each.name) > _OUTPUTS:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(each.name), False)


def _owners(directory: Path) -> set[int]:
    """Of all folders that jobs of this agent have now."""
    found = set()
    for folder in (*directory.glob("placements/*/work"), *directory.glob("setups/*/tree")):
        with contextlib.suppress(OSError):
            found.add(folder.lstat().st_uid)
    return found


def _as_user(account: UnixUser | None) -> list[str]:
    """Before the command: another user, and no right to become more."""
    if account is None:
        return []
    groups = ",".join(map(str, account.groups))
    return [
        _program("setpriv"),
        f"--reuid={account.uid}",
        f"--regid={account.gid}",
        f"--groups={groups}" if groups else "--clear-groups",
        "--no-new-privs",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--",
    ]


def _identity(account: UnixUser | None) -> dict[str, str]:
    """Who a job is, and where its home is: in its own /tmp unless its user has one."""
    if account is None or not account.name:
        return {"HOME": TMP, "TMPDIR": TMP, "USER": "job", "LOGNAME": "job"}
    who = {"HOME": account.home, "TMPDIR": TMP, "USER": account.name, "LOGNAME": account.name}
    return who | {"SHELL": account.shell}


def exports(environment: dict[str, str]) -> bytes:
    """Variables as a shell takes them up."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
    return "".join(lines).encode()


@functools.cache
def _program(name: str) -> str:
    """A program of the host's, by its whole path. Raises `FileNotFoundError`."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin:/run/current-system/sw/bin")
    if found is None:
        package = "bubblewrap" if name == "bwrap" else "util-linux and coreutils"
        raise FileNotFoundError(f"{name} is not installed: install the package {package}")
    return found


def homes() -> list[Path]:
    """The agent's home, where its credentials are."""
    names = {os.environ.get("HOME", "")}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.geteuid()).pw_dir)
    homes = {Path(name).resolve() for name in names if Path(name).is_absolute()}
    return sorted(home for home in homes if home != Path("/") and home.is_dir())


def programs_below(home: Path) -> list[Path]:
    """Where the programs are that the agent, and so its jobs, find below its home; of folders that have data or credentials beside programs only those parts."""
    below = {folder for folder in _searched(home, os.environ.get("PATH", os.defpath)) if folder.exists()}
    return sorted(folder for folder in below if below.isdisjoint(folder.parents))


@functools.cache
def _searched(home: Path, path: str) -> tuple[Path, ...]:
    """All below a home that a search path and the interpreter name, or stand beside."""
    found = {Path(sys.prefix), Path(sys.base_prefix)}
    for entry in map(Path, path.split(os.pathsep)):
        found.add(entry)
        if entry.name in PROGRAMS:
            found |= {entry.parent / name for name in (*PROGRAMS, *BESIDE_PROGRAMS)}
    return tuple(folder for folder in found if folder != home and folder.is_relative_to(home))


def _empty(folder: Path) -> list[str]:
    return ["--perms", "0755", "--tmpfs", str(folder)]


def _shown(kind: str, path: Path, top: Path) -> list[str]:
    """A file or folder as the host has it, with folders on the way from `top`, which is hidden, that everybody may pass."""
    view = []
    for parent in reversed(path.parents):
        if parent != top and parent.is_relative_to(top):
            view += ["--perms", "0755", "--dir", str(parent)]
    return [*view, kind, str(path), str(path)]


def _device_folder() -> list[str]:
    """A /dev with terminals of its own, and the devices that the agent's user may open. What this user's other terminals have would be open to a job of the same user."""
    view = ["--dev", "/dev"]
    for device in sorted(Path("/dev").iterdir()):
        if not _NO_DEVICES.fullmatch(device.name) and os.access(device, os.R_OK):
            view += ["--dev-bind-try", str(device), str(device)]
    return view


def _own_instances(gpus: Sequence[int]) -> list[str]:
    """Of MIG instances those of these numbers alone. Others are not hidden one by one: they are made while jobs run, and their nodes with them."""
    folder = nodes.of_instances()
    view = _empty(folder) if folder else []
    for node in nodes.openers(gpus) if folder else ():
        view += ["--dev-bind-try", str(node), str(node)]
    return view


def _of_its_own(folders: Sequence[Path]) -> list[str]:
    """An empty /run, but for what everybody may use; empty folders in the place of those where everybody may write; and message queues."""
    view = ["--tmpfs", "/run"]
    for name in RUN_STAYS:
        view += ["--ro-bind-try", f"/run/{name}", f"/run/{name}"]
    for folder in folders:
        view += ["--perms", "1777", "--tmpfs", str(folder)]
    return [*view, "--mqueue", str(QUEUES)] if QUEUES.is_dir() else view


def open_to_all(top: Path) -> list[Path]:
    """Folders down to two levels below in which everybody may make files, but for temporary ones. Nothing is told of what cannot be read."""
    found: list[str] = []
    below = [str(top)]
    for _ in range(2):
        above, below = below, []
        for folder in above:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False) or entry.path == f"{top}{TMP}":
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        open_to_all = entry.stat(follow_symlinks=False).st_mode & stat.S_IWOTH
                        (found if open_to_all else below).append(entry.path)
    return [Path(folder) for folder in found]


def _tried(launch: Launch) -> str:
    """Run it once, and say what went wrong."""
    moved = f'exec {GIVEN_DESCRIPTOR}<&0 </dev/null; exec "$@"'
    with os.fdopen(os.memfd_create("given"), "wb") as given:
        given.write(exports(launch.given or {}))
        given.flush()
        done = subprocess.run(
            ["/bin/sh", "-c", moved, "sh", *launch.command],
            env=launch.environment,
            stdin=given,
            capture_output=True,
            timeout=PROBE_WITHIN_S,
            check=False,
        )
    if done.returncode == 0:
        return ""
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return said[-1][:300] if said else f"a trial ended with exit code {done.returncode}"
