"""What the verbs of `federator-agent` do."""

import argparse
import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import msgspec

from federator.kernel import logs, systemd
from federator.kernel.clock import SystemClock
from federator.kernel.errors import Conflict, FederatorError, Invalid, Transient, Untrusted
from federator.kernel.files import write_durably
from federator.kernel.quantities import format_instant, format_mib
from federator.kernel.route import Way
from federator.retry import Backoff
from federator.wire.link import JoinRequest
from federator_agent import excerpts, gpu_probe, images, job_folders, nvml
from federator_agent.config import AgentSettings, load
from federator_agent.core.lent_capacity import lent_hosts
from federator_agent.core.state import Phase, State, restore
from federator_agent.enrollment import change_key, reason
from federator_agent.enrollment import join as join_dispatcher
from federator_agent.gpus import Driver, DriverTrouble, NoDriver, describe
from federator_agent.home import settle
from federator_agent.keys import Keys, public
from federator_agent.local.confinement import Launch, keep_descriptors
from federator_agent.local.ranks import LocalRanks
from federator_agent.loop import Agent
from federator_agent.runtimes import keeping_apart, kind, where_work_is
from federator_agent.spool import Identity, Spool
from federator_agent.untraceable import be_untraceable

CA_FILE = "ca.pem"
"""In the state directory: the authority that `join` was told to believe, for a site file that names none."""
ALIVE_FILE = "alive"
JOINING = Backoff(2.0, 15.0)
_CHECK_CODE = 7
_NO_FAILURE = ("ok", "WARN")
log = logging.getLogger("federator_agent")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def join(options: argparse.Namespace) -> int:
    """Bind this host's key to a site."""
    settings = load(options.config)
    given = str(options.token)
    if given == "-":
        given = sys.stdin.readline().strip()
    token = given or settings.join_token
    if not token:
        raise Invalid("no join token is given", remedy="a site admin makes one; give it with --token")
    way = _way(settings, options.ca)
    spool = Spool(settings.state_dir)
    with Keys(spool.directory).alone():
        identity = _join(settings, spool, options.dispatcher.rstrip("/"), token, way, new_key=options.new_key)
    if options.ca:
        write_durably(spool.directory / CA_FILE, Path(options.ca).read_bytes())
    _say(
        f"joined {identity.dispatcher} as {identity.member} of site {identity.site}; next: federator-agent serve"
    )
    return 0


def _way(settings: AgentSettings, ca: str = "") -> Way:
    """How the dispatcher is reached. Raises `Invalid`."""
    left = settings.state_dir / CA_FILE
    return Way(
        ca=ca or settings.ca or (str(left) if left.exists() else ""),
        proxy=settings.proxy,
        environ=settings.proxies,
        ca_field="--ca" if ca else "$.ca",
        proxy_field="$.proxy",
        server_field="$.dispatcher",
    )


def _join(
    settings: AgentSettings, spool: Spool, dispatcher: str, token: str, way: Way, *, new_key: bool = False
) -> Identity:
    dispatcher = dispatcher or settings.dispatcher
    if not dispatcher:
        raise Invalid(
            "no dispatcher is given", remedy="use --dispatcher URL, or 'dispatcher:' in the site file"
        )
    known = spool.identity()
    if known is not None and known.dispatcher != dispatcher:
        raise Conflict(f"this host has joined {known.dispatcher}", remedy="run federator-agent leave first")
    keys = Keys(spool.directory, settings.host_key)
    key = keys.next_for_joining() if new_key else keys.present
    site = settings.site.name
    # A host that joins again is to be the member that it was.
    member = settings.member if known is None else known.member
    request = JoinRequest(
        public_key=public(key), member=member, labels=settings.site.labels, host_key=public(keys.host)
    )
    identity = asyncio.run(join_dispatcher(dispatcher, token, request, site, way=way))
    if identity.site != site:
        # A dispatcher of before SITE_HEADER does not look; by now it has used the token.
        raise Conflict(
            f"the site file says {site}, the token was for {identity.site}, and is used up",
            field="$.site",
            remedy=f"write 'site: {identity.site}' in the file and join again with it, or ask for a token for site {site}",
        )
    if known is not None and known.member != identity.member:
        raise Conflict(
            f"this host is {known.member}, and the token has let it in as {identity.member}; it is used up",
            remedy=f"ask for one that is made for it: federator token create --site {site} --member {known.member}",
        )
    spool.keep_identity(identity)
    if new_key:
        keys.finish()
    return identity


def serve(options: argparse.Namespace) -> int:
    """Run the agent until TERM or INT; what runs here goes on without it. HUP restarts it with the site file as it is now, if that has no mistake."""
    be_untraceable()
    keep_descriptors()
    faulthandler.enable()  # a watchdog that ends it leaves in the log where it stood
    if _reloads():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can be heeded
    settings = load(options.config)
    level = logging.getLogger().level
    logs.configure(level=level, as_json=settings.as_json)
    spool = Spool(settings.state_dir)
    spool.lock()
    (settings.state_dir / ALIVE_FILE).unlink(missing_ok=True)  # of one that was killed
    settle(settings.state_dir, moved=options.moved)
    identity = spool.identity()
    way = _way(settings)
    failures = 0
    while identity is None:
        if not settings.join_token:
            raise Invalid("this host has not joined a federation", remedy="run federator-agent join first")
        try:
            identity = _join(settings, spool, "", settings.join_token, way)
        except (Transient, Untrusted) as error:
            log.warning("joining: %s; trying again", error)
            failures += 1
            time.sleep(JOINING.pause_s(failures))
    if settings.dispatcher:
        # The site file may name dispatchers that came later than this host did.
        identity = msgspec.structs.replace(identity, dispatcher=settings.dispatcher)
    log.info("%s of site %s, state in %s", identity.member, identity.site, settings.state_dir)
    for line in check_gpus(settings):
        if line.startswith("WARN"):
            log.warning(line.removeprefix("WARN").strip())
    agent = Agent(settings, identity, spool, way)
    logs.configure(level=level, as_json=settings.as_json, job_of=agent.job_of)
    asyncio.run(_serve(agent, settings, options.config))
    return 0


def _reloads() -> bool:
    """Whether a hang-up is a wish of its supervisor, and not of who closes the terminal that it was started in."""
    return not sys.stdin or not sys.stdin.isatty()


async def _serve(agent: Agent, settings: AgentSettings, config: Path | None) -> None:
    """Run it to its end, or until it is to begin anew; then this does not return."""
    task = asyncio.create_task(agent.serve())
    alive = systemd.show_life(
        settings.state_dir / ALIVE_FILE, lambda: "connected" if agent.connected else "on its own"
    )
    signs = [asyncio.create_task(systemd.beat()), asyncio.create_task(alive)]
    anew = False

    def reload() -> None:
        nonlocal anew
        faults = _not_to_be_taken(settings, config)
        for fault in faults:
            log.error("the site file is not taken, and all goes on as before: %s", fault)
        if not faults:
            log.info("restarting with the site file as it is now")
            anew = True
            task.cancel()

    def stop() -> None:
        nonlocal anew
        anew = False
        systemd.end_soon()
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if _reloads():
        loop.add_signal_handler(signal.SIGHUP, reload)
    systemd.tell(systemd.READY)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    for sign in signs:
        sign.cancel()
    (settings.state_dir / ALIVE_FILE).unlink(missing_ok=True)
    if anew:
        # The same process, which its supervisor and its children know; all else is read and opened again, as by any restart. At once: threads may take long to end.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program


def _not_to_be_taken(settings: AgentSettings, config: Path | None) -> list[str]:
    """What is wrong with the site file as it is now, for an agent that runs with `settings`."""
    try:
        new = load(config)
        _way(new)
        keeping_apart(new)
    except FederatorError as fault:
        return [str(fault)]
    except ExceptionGroup as faults:
        return [str(fault) for fault in faults.exceptions]
    was, remedy = where_work_is(settings), "stop the agent once none of its jobs is left, then start it"
    return [
        f"$.{key}: cannot change while the agent runs ({remedy})"
        for key, value in where_work_is(new).items()
        if value != was.get(key)
    ]


def status(options: argparse.Namespace) -> int:
    """Show what is on disk, and whether a dispatcher answers from here. Needs no running agent and disturbs none."""
    settings = load(options.config)
    spool = Spool(settings.state_dir)
    state = _remembered(settings, spool)
    identity = spool.identity()
    member = (
        f"{identity.member} of site {identity.site} at {identity.dispatcher}" if identity else "not joined"
    )
    _say(f"member      {member}")
    if Keys(spool.directory).unfinished:
        _say("key         a change of key was begun and not finished: run federator-agent rotate-key again")
    _say(
        f"agent       {'running' if spool.in_use() else 'not running'}, {'paused' if spool.paused else 'not paused'}"
    )
    if identity:
        said = _check_dispatcher(settings, options)
        reached = said.startswith("ok")
        _say("dispatcher  answers" if reached else f"dispatcher  no new work comes from it: {said}")
    for record in state.records.values():
        report = record.report
        since = format_instant(report.at) if report else ""
        _say(f"placement   {record.entry.placement} {record.entry.job_name} {record.phase} {since}")
    return 0


def _remembered(settings: AgentSettings, spool: Spool) -> State:
    return restore(State(site=settings.site), spool.read())


def check(options: argparse.Namespace) -> int:
    """Prove what an installation needs, each with a line; 1 when something fails."""
    settings = load(options.config)
    kind = f", {settings.kind}" if settings.kind else ""
    _say(f"ok    site file: {settings.site.name}{kind}, clock {settings.clock}")
    for pool in settings.site.pools:
        lent = lent_hosts(settings.site, pool)
        each = _counted(pool.gpus_per_node, "GPU")
        has = f"{_counted(pool.nodes, 'host')}, each {each} {pool.model}".rstrip()
        if pool.shares:
            has = f"{_counted(pool.nodes, 'GPU')} {pool.model}, shared: each is a host for parts of it"
        gpus = sum(len(host.gpus) for host in lent)
        rest = f"{pool.cpus_milli_per_node / 1000:g} CPUs, {format_mib(pool.memory_mib_per_node)}"
        _say(
            f"ok    pool {pool.name}: {has}, {rest}; lent: {_counted(len(lent), 'host')}, {_counted(gpus, 'GPU')}"
        )
    failures = [
        *check_gpus(settings), *_check_isolation(settings), *_check_kube(settings), *_check_images(settings),
        *_check_slurm(settings), _check_shim(settings), *_check_disk(settings), _check_dispatcher(settings, options),
    ]  # fmt: skip
    for failure in failures:
        _say(failure if failure.startswith(_NO_FAILURE) else f"FAIL  {failure}")
    return 0 if all(failure.startswith(_NO_FAILURE) for failure in failures) else 1


def _check_images(settings: AgentSettings) -> list[str]:
    path = settings.environment.get("PATH", os.defpath)
    return [] if settings.kube is not None else images.notes(settings.images, path)


def _check_kube(settings: AgentSettings) -> list[str]:
    if settings.kube is None:
        return []
    from federator_agent.kube import checks  # noqa: PLC0415 - an agent that serves has no use for it

    return checks.notes(settings.kube, checks.own_namespace())


def _check_slurm(settings: AgentSettings) -> list[str]:
    if settings.slurm is None:
        return []
    from federator_agent.slurm import checks  # noqa: PLC0415 - an agent that serves has no use for it

    return asyncio.run(checks.check(settings.slurm, settings.environment, settings.state_dir))


def check_gpus(settings: AgentSettings) -> list[str]:
    """What is wrong with the GPUs that the site file names, a line each."""
    pools = settings.site.pools
    here = any(pool.is_here for pool in pools)
    # A site file that names no GPU may be meant so, or be one that waits for them to be counted.
    unnamed = bool(pools) and not any(pool.gpus_per_node for pool in pools)
    if not settings.watch_gpus or not (here or unnamed):
        return []
    try:
        reading = Driver(gpu_probe.library(settings.gpu_probe)).read()
        return describe(reading) if here else []
    except NoDriver as error:
        if not nvml.present():
            return [f"ok    GPUs are taken from the site file: {error}"] if here else []
        return [f"WARN  this host has NVIDIA GPUs that cannot be counted: {error}; {nvml.REMEDY}"]
    except DriverTrouble as error:
        return [str(error)] if here else []


def _check_isolation(settings: AgentSettings) -> list[str]:
    """How jobs are kept apart here; where they are not, why, and whose are taken."""
    if kind(settings).outlives:
        return []
    try:
        Spool(settings.state_dir)
        found = keeping_apart(settings)
    except (FederatorError, OSError) as error:
        return [error.describe() if isinstance(error, FederatorError) else f"state_dir: {error}"]
    return [
        f"{'ok   ' if found.apart else 'WARN '} isolation {found.describe()}",
        f"{'ok   ' if found.limits else 'WARN '} {found.describe_limits()}",
    ]


def _check_shim(settings: AgentSettings) -> str:
    try:
        Spool(settings.state_dir)
        directory = Path(tempfile.mkdtemp(prefix="check-", dir=settings.state_dir))
    except OSError as error:
        return f"state_dir {settings.state_dir}: {error.strerror}; make it writable for this user"
    try:
        code = asyncio.run(_run_once(directory, settings.environment))
    except (OSError, TimeoutError) as error:
        return f"a process cannot be started: {error}"
    finally:
        job_folders.remove(directory)
    if code != _CHECK_CODE:
        return f"a process that exits with {_CHECK_CODE} was seen to exit with {code}; is util-linux (setsid) installed?"
    return f"ok    processes can be started and followed, state in {settings.state_dir}"


def _check_disk(settings: AgentSettings) -> list[str]:
    """Whether a job that writes without end fills the disk of its site."""
    folder = settings.slurm.shared_dir if settings.slurm else settings.state_dir
    why = excerpts.lacking(folder) if folder.is_dir() else ""
    if not why:
        return []
    return [f"WARN  the log of a job takes as much of {folder} as the job writes: {why}; set a quota there"]


async def _run_once(directory: Path, environment: dict[str, str]) -> int | None:
    ranks = LocalRanks(SystemClock())
    over: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    command = ["/bin/sh", "-c", f"exit {_CHECK_CODE}"]
    launch = Launch(command, environment)
    ranks.start(directory, directory, launch, lambda _, code, __: over.set_result(code))
    return await asyncio.wait_for(over, 10)


def _check_dispatcher(settings: AgentSettings, options: argparse.Namespace) -> str:
    identity = Spool(settings.state_dir).identity() if settings.state_dir.exists() else None
    dispatcher = options.dispatcher or settings.dispatcher or (identity.dispatcher if identity else "")
    if not dispatcher:
        return "no dispatcher is given: use --dispatcher URL, or 'dispatcher:' in the site file"
    try:
        way = _way(settings, options.ca)
    except FederatorError as error:
        return error.describe()
    answers = [asyncio.run(_reach(each.strip().rstrip("/"), way)) for each in dispatcher.split(",")]
    return next((answer for answer in answers if not answer.startswith("ok")), answers[0])


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("//")
    return f"{scheme}//{rest.rpartition('@')[2]}"


async def _reach(dispatcher: str, way: Way) -> str:
    proxy = way.proxy(dispatcher)
    through = f" through the proxy {_without_password(proxy)}" if proxy else ""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
            http.get(f"{dispatcher}/healthz", **way.options(dispatcher)) as answer,
        ):
            if answer.status < 400:
                return f"ok    dispatcher {dispatcher} answers{through}"
            return f"dispatcher {dispatcher} answers {answer.status}{through}"
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        fault = way.fault(error, dispatcher)
        if fault is not None:
            return fault.describe()
        return f"$.dispatcher: {dispatcher} cannot be reached{through}: {reason(error)}"


def rotate_key(options: argparse.Namespace) -> int:
    """Have the dispatcher take a new key in the place of the present one, which signs for it."""
    settings = load(options.config)
    spool = Spool(settings.state_dir)
    identity = spool.identity()
    if identity is None:
        raise Invalid("this host has not joined a federation", remedy="run federator-agent join first")
    keys = Keys(spool.directory, settings.host_key)
    with keys.alone():
        keys.begin(identity.member)
        request = keys.request(identity.member)
        assert request is not None
        asyncio.run(change_key(settings.dispatcher or identity.dispatcher, request, _way(settings)))
        keys.finish()
    _say(f"{identity.member} has a new key; the old one is no longer valid")
    return 0


def pause(options: argparse.Namespace) -> int:
    """Take no new work."""
    settings = load(options.config)
    Spool(settings.state_dir).pause(paused=True)
    _say("paused: new work is refused; what runs goes on")
    return 0


def resume(options: argparse.Namespace) -> int:
    """Take new work again."""
    settings = load(options.config)
    Spool(settings.state_dir).pause(paused=False)
    _say("resumed: new work is taken")
    return 0


def leave(options: argparse.Namespace) -> int:
    """Forget name and key, once nothing is here that the dispatcher does not know to be over."""
    settings = load(options.config)
    spool = Spool(settings.state_dir)
    spool.lock()
    open_ = [
        record.entry.placement
        for record in _remembered(settings, spool).records.values()
        if record.phase is not Phase.ENDED or not record.acknowledged
    ]
    if open_:
        remedy = "pause, let them end while the agent serves, then leave"
        raise Conflict(f"{len(open_)} placements are not over, {open_[0]} among them", remedy=remedy)
    spool.forget_identity()
    _say("left: the key is gone; an administrator of the federation removes the member")
    return 0
