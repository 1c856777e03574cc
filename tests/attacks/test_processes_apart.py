"""What a job at the process runtime tries against its host, the agent and other jobs: each is refused, where jobs run as users of their own and in a sandbox.

The attacker is a real job, staged and started as the agent does it. A victim runs beside it, whose files, environment and processes are what is wanted.
"""

import functools
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from federator.kernel.errors import Invalid
from federator.wire.decoding import decode
from federator_agent.core import events as ev
from federator_agent.core.state import PlacementRecord
from federator_agent.local import confinement, nodes
from federator_agent.local.confinement import GIVEN_DESCRIPTOR, Confinement, Place
from federator_agent.local.isolation import Isolation, Mode
from federator_agent.local.runtime import LocalRuntime
from federator_agent.local.traces import processes
from federator_agent.mig import number_of
from tests.contract.runtimes import factories_local_sandbox, factories_local_users, test_entering
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.support.waiting import until
from tests.testbeds.required import need

ORDINARY = 64_321
"""A user of no name."""
SECRET = "the-victims-secret"
MODES: dict[str, ModuleType] = {
    "local-users": factories_local_users,
    "local-sandbox": factories_local_sandbox,
}
BOMB = """
import os, signal
born = []
try:
    while len(born) < 200:
        child = os.fork()
        if not child:
            signal.pause()
        born.append(child)
except OSError:
    print("refused after", len(born), flush=True)
for child in born:
    os.kill(child, 9)
"""
REACHED = "REACHED"
"""What an attack says when it has worked."""


class Scene(NamedTuple):
    """A victim that runs, and an agent's state beside it."""

    world: RuntimeWorld
    state: Path
    victim: PlacementRecord

    async def attack(self, script: str) -> str:
        """Run it as a job; what it has written."""
        spec = self.world.spec(script)
        record = await self.world.run(spec, owner="eve")
        await self.world.over(record)
        return self.world.log(record)

    @property
    def victims_folder(self) -> Path:
        return self.state / "placements" / self.victim.entry.placement


@pytest.fixture(params=list(MODES))
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    factory = MODES[request.param]
    need(factory.lacking())
    world = RuntimeWorld(tmp_path, factory.site())
    world.begin()
    state = tmp_path / "state"
    (state / "key").write_text(SECRET)
    (state / "key").chmod(0o600)
    victim_spec = world.spec(
        "echo result > result; echo mine > /tmp/victim; echo mine > /dev/shm/victim; echo up; until [ -e stop ]; do sleep 0.1; done",
        env={"TOKEN": SECRET},
    )
    victim = await world.run(victim_spec, owner="ada")
    await world.has_written(victim, "up")
    yield Scene(world, state, victim)
    world.runtime.signal(victim.entry.placement, (0,), "KILL")
    await world.over(victim)
    await world.close()


def _reads(path: Path | str) -> str:
    return f"cat {shlex.quote(str(path))} && echo {REACHED}; true"


async def test_the_agents_key_is_not_there(scene: Scene) -> None:
    said = await scene.attack(_reads(scene.state / "key"))
    assert "No such file" in said
    assert SECRET not in said


async def test_nothing_of_the_agents_state_is_there_but_its_own(scene: Scene) -> None:
    said = await scene.attack(
        f'find {scene.state} -type f; ls {scene.state}/placements | wc -l; echo "in $(pwd)"'
    )
    assert said.startswith("1\n"), said


async def test_a_victims_output_cannot_be_read_or_altered(scene: Scene) -> None:
    result = scene.victims_folder / "work" / "result"
    said = await scene.attack(f"echo forged > {result} && echo {REACHED}; {_reads(result)}")
    assert REACHED not in said
    assert result.read_text() == "result\n"


async def test_a_victims_end_mark_and_log_cannot_be_forged(scene: Scene) -> None:
    rank = scene.victims_folder / "rank-0"
    said = await scene.attack(
        f"echo 0 > {rank}/exit && echo {REACHED}; echo forged > {rank}/log && echo {REACHED}; touch {rank}/shim && echo {REACHED}; true"
    )
    assert REACHED not in said
    assert not (rank / "exit").exists()
    assert "forged" not in (rank / "log").read_text()


async def test_its_own_end_cannot_be_forged(scene: Scene) -> None:
    spec = scene.world.spec('echo 0 > "$FEDERATOR_RANK_DIR/exit"; exit 3')
    record = await scene.world.run(spec, owner="eve")
    (end,) = await scene.world.over(record)
    assert end.exit_code == 3


async def test_processes_and_environments_of_others_are_not_to_be_seen(scene: Scene) -> None:
    said = await scene.attack(
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls -d /proc/[0-9]* | wc -l"
    )
    assert SECRET not in said
    assert "until [ -e stop ]" not in said
    assert int(said.split()[-1]) < 10


async def test_neither_agent_nor_victim_can_be_signalled_or_traced(scene: Scene) -> None:
    victim = processes(scene.victims_folder / "rank-0")
    pids = " ".join(map(str, [os.getpid(), *victim]))
    said = await scene.attack(
        f"for pid in {pids}; do kill -9 $pid && echo {REACHED}; cat /proc/$pid/mem && echo {REACHED}; done; true"
    )
    assert REACHED not in said
    assert scene.world.count(ev.RankEnded, scene.victim) == 0


async def test_temporary_files_of_others_are_not_there(scene: Scene) -> None:
    said = await scene.attack(
        f"ls -A /tmp /var/tmp /dev/shm; {_reads('/tmp/victim')}; {_reads('/dev/shm/victim')}"
    )
    assert "victim\n" not in said
    assert REACHED not in said


MEETS = """
import ctypes, os, platform
libc, name = ctypes.CDLL(None, use_errno=True), b"federator-meets"
folders = ("/dev/shm", "/dev/mqueue", "/run/lock", "/var/lock", "/tmp", "/var/tmp", "/run/user")
files = [os.path.join(folder, name.decode()) for folder in folders if os.access(folder, os.W_OK)]
for file in files:
    print(file, "REACHED" if os.path.exists(file) else "own")
for file in files:
    open(file, "w").close()
print("memory", "REACHED" if libc.shmget(0x5eed, 4096, 0o3666) == -1 else "own")
queue = ctypes.CDLL("librt.so.1").mq_open(b"/queue-" + name, 0o302, 0o666, None)
print("queue", "REACHED" if queue == -1 else "own")
add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[platform.machine()]
print("keys", "own" if libc.syscall(keyctl, 10, -3, b"user", name, 0) == -1 else "REACHED")
libc.syscall(add_key, b"user", name, b"secret", 6, -3)
print("up", flush=True)
"""


async def test_no_place_of_the_host_is_shared_with_another_job(scene: Scene) -> None:
    """What two jobs may both write to is where one of them lays traps for the other, or fills a lock's name."""
    script = f"/usr/bin/python3 -c {shlex.quote(MEETS)}"
    waits = f"{script} && until [ -e stop ]; do sleep 0.1; done"
    first = await scene.world.run(scene.world.spec(waits), owner="ada")
    await scene.world.has_written(first, "up\n")
    said = await scene.attack(script)
    scene.world.runtime.signal(first.entry.placement, (0,), "KILL")
    await scene.world.over(first)
    assert REACHED not in said
    assert scene.world.log(first).startswith(said)
    for folder in ("/dev/shm", "/run/lock", "/tmp", "/var/tmp"):
        assert f"{folder}/federator-meets own\n" in said, "a job may use them for itself"


async def test_the_sockets_of_services_and_sessions_are_not_there(scene: Scene) -> None:
    """By docker's, or by that of a user's session, a job could start programs outside of its confinement."""
    said = await scene.attack("ls -A /run /run/user /run/docker.sock /run/dbus /run/systemd 2>&1; true")
    there = set(said.partition("/run:\n")[2].partition("\n\n")[0].split())
    assert there <= {"lock", *(name.partition("/")[0] for name in confinement.RUN_STAYS)}, said


def test_folders_below_var_that_are_open_to_all_are_found(tmp_path: Path) -> None:
    for name, mode in {
        "crash": 0o1777,
        "lib/app": 0o777,
        "lib/own": 0o755,
        "tmp": 0o1777,
        "a/b/c": 0o777,
    }.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name).chmod(mode)
    (tmp_path / "lock").symlink_to(tmp_path / "lib")
    assert sorted(confinement.open_to_all(tmp_path)) == [tmp_path / "crash", tmp_path / "lib/app"]


async def test_the_agents_home_with_its_credentials_is_empty(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path.with_name(f"{tmp_path.name}-home")
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "credentials").write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    said = await scene.attack(_reads(home / ".aws" / "credentials"))
    assert SECRET not in said
    shutil.rmtree(home)


async def test_nothing_of_a_jobs_environment_has_a_say_outside(scene: Scene, tmp_path: Path) -> None:
    """A program of the job's that is loaded before its user is changed would run as the agent."""
    spec = scene.world.spec(
        "echo up; until [ -e stop ]; do sleep 0.1; done",
        env={
            "LD_PRELOAD": f"{tmp_path}/evil.so",
            "PATH": f"{tmp_path}/evil:/usr/bin:/bin",
            "BASH_ENV": "/evil",
        },
    )
    record = await scene.world.run(spec, owner="eve")
    await scene.world.has_written(record, "up")
    rank = scene.state / "placements" / record.entry.placement / "rank-0"
    first, *_ = (rank / "shim").read_text().split(" ", 1)
    outside = Path(f"/proc/{first}/environ").read_bytes()
    assert b"evil" not in outside
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    assert all(b"evil" not in Path(f"/proc/{pid}/environ").read_bytes() for pid in children)
    scene.world.runtime.signal(record.entry.placement, (0,), "KILL")
    await scene.world.over(record)


async def test_children_that_hide_end_with_their_job(scene: Scene) -> None:
    said = await scene.attack(
        "env -i setsid sh -c 'setsid sleep 3001 & setsid sleep 3001 &' & sleep 0.2; echo left"
    )
    assert "left" in said
    await until(lambda: not _running("sleep\0003001"), "the hidden children are gone")


@pytest.mark.parametrize("mode", [Mode.USERS, Mode.SANDBOX])
async def test_a_fork_bomb_is_bounded(tmp_path: Path, mode: Mode) -> None:
    need(MODES[f"local-{mode}"].lacking())
    if mode is Mode.SANDBOX and os.geteuid() == 0:
        pytest.skip(
            "the kernel does not hold root to it: see the test that runs all of these as an ordinary user"
        )
    made = Isolation(mode=mode, processes=64)
    site = Site(
        lambda around: LocalRuntime(around._replace(confinement=Confinement(mode, made, tmp_path / "state"))),
        "cpu",
    )
    world = RuntimeWorld(tmp_path, site)
    tmp_path.chmod(0o755)
    world.begin()
    record = await world.run(world.spec(f"exec /usr/bin/python3 -c {shlex.quote(BOMB)}"))
    await world.over(record)
    assert "refused after" in world.log(record)
    await world.close()


async def test_no_right_comes_back_through_a_setuid_program(scene: Scene) -> None:
    said = await scene.attack("grep -E 'NoNewPrivs|CapEff|CapBnd' /proc/self/status")
    assert "NoNewPrivs:\t1" in said
    assert "CapEff:\t0000000000000000" in said


async def test_a_user_of_its_own_for_each_placement(tmp_path: Path) -> None:
    need(factories_local_users.lacking())
    world = RuntimeWorld(tmp_path, factories_local_users.site())
    world.begin()
    records = [await world.run(world.spec("id -u; until [ -e stop ]; do sleep 0.1; done")) for _ in range(2)]
    for record in records:
        await world.has_written(record, "\n")
    uids = {int(world.log(record)) for record in records}
    assert len(uids) == 2
    assert all(200_000 <= uid <= 265_535 for uid in uids)
    for record in records:
        world.runtime.signal(record.entry.placement, (0,), "KILL")
        await world.over(record)
    await world.close()


@pytest.fixture
async def mapped(tmp_path: Path) -> AsyncIterator[RuntimeWorld]:
    """A host on which two people have accounts."""
    need(factories_local_users.lacking())
    state = tmp_path / "state"
    made = Isolation(mode=Mode.USERS, users={"ada": "games", "ben": "daemon"})
    site = Site(
        lambda around: LocalRuntime(around._replace(confinement=Confinement(Mode.USERS, made, state))), "cpu"
    )
    world = RuntimeWorld(tmp_path, site)
    world.begin()
    yield world
    await world.close()


async def test_jobs_of_people_with_accounts_run_as_these(mapped: RuntimeWorld, tmp_path: Path) -> None:
    script = 'echo "$(id -un) $USER $HOME"; id -G; umask 077; echo of $USER > result; until [ -e stop ]; do sleep 0.1; done'
    works = {}
    for owner, account in (("ada", "games"), ("ben", "daemon")):
        record = await mapped.run(mapped.spec(script), owner=owner)
        await mapped.has_written(record, f"{account} {account} {pwd.getpwnam(account).pw_dir}\n")
        work = works[account] = tmp_path / "state/placements" / record.entry.placement / "work"
        await until((work / "result").exists, "the result is there")
        assert work.stat().st_uid == (work / "result").stat().st_uid == pwd.getpwnam(account).pw_uid
        assert str(pwd.getpwnam(account).pw_gid) in mapped.log(record).splitlines()[1].split()
    other = works["daemon"] / "result"
    spy = await mapped.run(mapped.spec(f"{_reads(other)}; kill -9 -1; echo done"), owner="ada")
    await mapped.over(spy)
    assert "No such file" in mapped.log(spy)
    assert REACHED not in mapped.log(spy)
    assert other.read_text() == "of daemon\n"
    assert [event for event in mapped.told if isinstance(event, ev.RankEnded)][1:] == []
    for work in works.values():
        (work / "stop").touch()
    for record in list(mapped.records.values()):
        await mapped.over(record)


def test_root_is_no_account_for_jobs() -> None:
    for name in ("root", "nobody-of-this-host"):
        with pytest.raises(Invalid) as caught:
            decode({"users": {"ada": name}}, Isolation, "$.isolation")
        assert caught.value.field == "$.isolation.users.ada"


def a_driver(root: Path, **instances: int) -> None:
    """What NVIDIA's driver says of two GPUs, and of these instances of the first, by the minor numbers of their nodes. Plain files stand for nodes."""
    for number, bus in enumerate(("0000:3b:00.0", "0000:1a:00.0")):
        folder = root / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t H200\nDevice Minor: \t {number}\n")
        (root / "dev/nvidia-caps").mkdir(parents=True, exist_ok=True)
        (root / f"dev/nvidia{number}").touch()
    for instance, minor in instances.items():
        folder = root / f"proc/driver/nvidia/capabilities/gpu1/mig/{instance}"
        (folder / "ci0").mkdir(parents=True)
        for access, number in ((folder, minor), (folder / "ci0", minor + 1)):
            (access / "access").write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n")
            (root / f"dev/nvidia-caps/nvidia-cap{number}").touch()


def test_the_gpus_of_others_are_not_to_be_opened(tmp_path: Path) -> None:
    """Device nodes by the driver's word."""
    a_driver(tmp_path, gi1=12, gi7=66)
    assert nodes.numbers(tmp_path) == [1, 0]
    assert nodes.others((0,), tmp_path) == (tmp_path / "dev/nvidia0",)
    assert nodes.others((), tmp_path) == (tmp_path / "dev/nvidia1", tmp_path / "dev/nvidia0")
    assert nodes.others((0, 1), tmp_path) == ()
    seventh = (number_of(0, 7),)
    assert nodes.others(seventh, tmp_path) == (tmp_path / "dev/nvidia0",)
    assert {node.name for node in nodes.openers(seventh, tmp_path)} == {"nvidia-cap66", "nvidia-cap67"}
    assert nodes.openers((0,), tmp_path) == nodes.openers((number_of(5, 7),), tmp_path) == ()


def test_a_job_sees_no_instance_but_its_own_even_of_those_made_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = Mode.USERS if os.geteuid() == 0 else Mode.SANDBOX
    need((factories_local_users if mode is Mode.USERS else factories_local_sandbox).lacking())
    root = tmp_path / "root"
    a_driver(root, gi1=12, gi7=66)
    for name in ("others", "of_instances", "openers"):
        monkeypatch.setattr(nodes, name, functools.partial(getattr(nodes, name), root=root))
    kept = Confinement(mode, Isolation(mode=mode, shared=(str(root),)), tmp_path / "state")
    own = tmp_path / "state/placements/p"
    place = Place(own, own / "work", gpus=(number_of(0, 7),))
    kept.own(place, fresh=True)
    folder = root / "dev/nvidia-caps"
    script = f"ls {folder}; echo; read go; ls {folder}"
    launch = kept.launch(place, ["/bin/sh", "-c", script], {}, {})
    given = ["/bin/sh", "-c", f'exec {GIVEN_DESCRIPTOR}</dev/null; exec "$@"', "sh", *launch.command]
    job = subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    out = job.stdout
    assert out is not None
    first = list(iter(lambda: out.readline().strip(), ""))
    (folder / "nvidia-cap120").touch()
    later = job.communicate("go\n")[0].split()
    assert first == later == ["nvidia-cap66", "nvidia-cap67"]


def test_the_agent_cannot_be_traced_by_its_own_user() -> None:
    need("" if os.geteuid() == 0 else "only root can become another user")
    program = "import os, sys\nfrom federator_agent.untraceable import be_untraceable\nbe_untraceable()\nprint('ready', flush=True)\nsys.stdin.read()\n"
    agent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    try:
        assert agent.stdout.readline() == "ready\n"
        assert Path(f"/proc/{agent.pid}/environ").stat().st_uid == 0
    finally:
        agent.communicate()


def test_the_sandbox_of_an_ordinary_user_holds_as_well(tmp_path: Path) -> None:
    """All of the above that a sandbox is for, with an agent that is not root. Its home hides what is below root's, so the interpreter is shown to it."""
    need(factories_local_users.lacking())
    folder = Path(tempfile.mkdtemp(prefix="ordinary-", dir="/var/tmp"))
    os.chown(folder, ORDINARY, ORDINARY)
    view = ["bwrap", "--dev-bind", "/", "/"]
    for home in confinement.homes():
        view += ["--perms", "0755", "--tmpfs", str(home)]
        for program in confinement.programs_below(home):
            view += ["--ro-bind", str(program), str(program)]
    user = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--inh-caps=-all"]
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "sandbox and not ordinary",
        f"--basetemp={folder}/tests",
    ]
    files = [__file__, test_entering.__file__]
    command = [*view, "--", *user, sys.executable, "-m", "pytest", *options, *files]
    environment = os.environ | {"HOME": str(folder), "HYPOTHESIS_STORAGE_DIRECTORY": str(folder)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=280
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " skipped" not in done.stdout.splitlines()[-1], done.stdout


def _running(words: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if words in (entry / "cmdline").read_bytes().decode(errors="replace"):
                    return True
            except OSError:
                continue
    return False
