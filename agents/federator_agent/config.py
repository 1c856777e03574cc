"""`site.yaml`, a rented machine's user data, and the environment, into settings. Nothing else in the agent reads these.

Every error names the file, the line, the field and the remedy. What the file does not say about the host is looked up on it.
"""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from federator.kernel.clock import parse_clock
from federator.kernel.errors import FederatorError, Invalid
from federator.kernel.way import PEM
from federator.model.sites import SiteKind
from federator.wire import fields
from federator.wire.accelerators import read_model
from federator.wire.yamltext import read_document
from federator_agent import nvml
from federator_agent.core.lending import HostPool, Site, is_of, with_shares
from federator_agent.data.allowed import Allowed
from federator_agent.data.allowed import parse as parse_addresses
from federator_agent.data.reach import read_networks
from federator_agent.images import Images
from federator_agent.images import parse as parse_images
from federator_agent.kube.settings import KubeSettings
from federator_agent.kube.settings import parse as parse_kube
from federator_agent.lent import parse as parse_lend
from federator_agent.local.isolation import Isolation
from federator_agent.local.isolation import read as read_isolation
from federator_agent.secrets import Secret
from federator_agent.secrets import parse as parse_secrets
from federator_agent.slurm.settings import SlurmSettings
from federator_agent.slurm.settings import parse as parse_slurm

USER_DATA_VARIABLE = "FEDERATOR_USER_DATA_FILE"
STATE_DIR_VARIABLE = "FEDERATOR_AGENT_STATE_DIR"
"""Where the agent keeps its state when its file does not say: set by a provider that has a place for it."""
UNWATCHED_VARIABLE = "FEDERATOR_NO_GPU_WATCH"
"""Set by who makes up machines: the GPUs that they declare are not those of this host."""
NOTICES_VARIABLE = "FEDERATOR_NOTICES"
"""`ec2` on a machine that its provider may take back, and tells so by the metadata service of EC2."""
EC2_METADATA = "http://169.254.169.254"
DEFAULT_STATE_DIR = "/var/lib/federator-agent"
SITE_KEYS = (
    "site", "kind", "region", "labels", "price_per_gpu_hour", "pools", "kube", "slurm", "lend", "dispatcher", "member", "address",
    "state_dir", "host_key", "clock", "report_every", "watch_gpus", "ca", "proxy", "inputs_cache", "secrets",
    "data_addresses", "data_networks", "isolation", "images",
)  # fmt: skip
USER_DATA_KEYS = (*SITE_KEYS, "join_token")
POOL_KEYS = (
    "name", "model", "gpu_memory", "nodes", "gpus_per_node", "cpus_per_node", "memory_per_node", "shared",
)  # fmt: skip
_PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "FEDERATOR_INSTANCE_DIR",  # by which the local provider finds what is left of a dead machine
)  # fmt: skip
_PROXIES = ("https_proxy", "http_proxy", "no_proxy")
_MAX_MIB = 2**30


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is started with."""

    site: Site
    kind: SiteKind | None = None
    """As the file says; what counts is what the join token was made with."""
    dispatcher: str = ""
    """URL of the dispatcher, such as `http://127.0.0.1:7070`; of several dispatchers all, with commas in between."""
    member: str = ""
    """A wish for this agent's name in the federation; empty: the site's name."""
    address: str = ""
    """Under which the site's other members reach this host; empty: its address on the way to the dispatcher."""
    state_dir: Path = Path(DEFAULT_STATE_DIR)
    host_key: Path | None = None
    """File of the second key, which signs for a change of the agent's key; None: in `state_dir`."""
    clock: str = "system"
    report_every_s: float | None = None
    """How often to report, in clock seconds; None: as the dispatcher says."""
    join_token: str = ""
    kube: KubeSettings | None = None
    """The Kubernetes cluster whose pods run the work, if one does."""
    slurm: SlurmSettings | None = None
    """The Slurm cluster whose jobs run the work, if one does."""
    notices: str = ""
    """URL of the metadata service that says when this machine is taken back; empty: nobody takes it back."""
    watch_gpus: bool = True
    """Whether GPUs of this host that ail take no new work."""
    ca: str = ""
    """PEM file of the authority behind the dispatcher's certificate, or its text; empty: the authorities that this host knows."""
    proxy: str = ""
    """URL of the proxy to the dispatcher, or `none`; empty: as `proxies` say."""
    inputs_cache_bytes: int | None = None
    """How much of the disk the inputs of jobs may keep; None: half of the file system that holds them."""
    data_addresses: tuple[Allowed, ...] | None = None
    """Which addresses jobs may name for their data; None: all."""
    data_networks: tuple[str, ...] = ()
    """Networks that inputs are fetched from by http(s), beside the public Internet."""
    secrets: dict[str, Secret] = {}
    """Which secrets jobs may ask for by name, and where they are."""
    isolation: Isolation = Isolation()
    """How jobs that are processes of this host are kept apart."""
    images: Images | None = None
    """How jobs run in the image that they name, where they are processes of hosts."""
    proxies: dict[str, str] = {}
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the agent's own environment. Jobs do not get them: they may hold a password."""
    environment: dict[str, str] = {}
    """What jobs get of the agent's own environment."""


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> AgentSettings:
    """Settings from a site file, or without one from the user data that the environment names. Raises `Invalid`."""
    user_data = environ.get(USER_DATA_VARIABLE)
    keys: tuple[str, ...] = SITE_KEYS
    if path is None:
        if not user_data:
            raise Invalid(
                "no site file is given", remedy=f"use --config site.yaml, or set {USER_DATA_VARIABLE}"
            )
        path, keys = Path(user_data), USER_DATA_KEYS
    try:
        text = path.read_text()
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror}", remedy="check the path and its permissions") from None
    return parse(text, str(path), keys, environ)


def parse(text: str, source: str, keys: tuple[str, ...], environ: Mapping[str, str]) -> AgentSettings:
    """Settings from YAML text. Raises `Invalid` that says where in `source`."""
    lines: dict[str, int] = {}
    try:
        document = read_document(text)
        lines = document.lines
        return _settings(fields.mapping(document.value, "$"), keys, environ)
    except FederatorError as error:
        line = _line(lines, error.field)
        where = f"{source}, line {line}" if line else source
        raise Invalid(f"{where}: {error.describe()}") from None


def _line(lines: dict[str, int], path: str | None) -> int | None:
    """The line of a field, or of the nearest thing around it that has one."""
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path) if path else None


def _settings(top: Mapping[str, object], keys: tuple[str, ...], environ: Mapping[str, str]) -> AgentSettings:
    fields.known_only(top, "$", keys)
    if "site" not in top:
        raise Invalid("is missing", field="$.site", remedy="give the site's name, for example 'site: basel'")
    _one_runtime(top)
    settings = AgentSettings(
        site=_site(top),
        kube=parse_kube(fields.mapping(top["kube"], "$.kube"), "$.kube") if "kube" in top else None,
        slurm=parse_slurm(fields.mapping(top["slurm"], "$.slurm"), "$.slurm") if "slurm" in top else None,
        kind=SiteKind(fields.one_of(top["kind"], "$.kind", tuple(SiteKind))) if "kind" in top else None,
        dispatcher=_url(top["dispatcher"], "$.dispatcher") if "dispatcher" in top else "",
        member=fields.name(top["member"], "$.member") if "member" in top else "",
        address=_address(top["address"]) if "address" in top else "",
        join_token=fields.text(top["join_token"], "$.join_token") if "join_token" in top else "",
        environment=_passed_on(environ),
        clock=_clock(top.get("clock", "system")),
        ca=_ca(top["ca"]) if "ca" in top else "",
        proxy=fields.text(top["proxy"], "$.proxy", limit=1000) if "proxy" in top else "",
        inputs_cache_bytes=_inputs_cache(top),
        data_addresses=_data_addresses(top),
        data_networks=read_networks(top.get("data_networks", []), "$.data_networks"),
        secrets=parse_secrets(top["secrets"], "$.secrets", kube="kube" in top) if "secrets" in top else {},
        isolation=read_isolation(top, environ),
        proxies={name: value for name, value in environ.items() if name.lower() in _PROXIES},
        images=_images(top),
        notices=_notices(environ),
        host_key=Path(fields.text(top["host_key"], "$.host_key")).absolute() if "host_key" in top else None,
        watch_gpus=fields.truth(top.get("watch_gpus", True), "$.watch_gpus")
        and UNWATCHED_VARIABLE not in environ,
        state_dir=Path(environ.get(STATE_DIR_VARIABLE) or DEFAULT_STATE_DIR).absolute(),
    )
    if "state_dir" in top:
        state_dir = Path(fields.text(top["state_dir"], "$.state_dir")).absolute()
        settings = msgspec.structs.replace(settings, state_dir=state_dir)
    if "report_every" in top:
        every_s = fields.duration_s(top["report_every"], "$.report_every", low_s=0.1)
        settings = msgspec.structs.replace(settings, report_every_s=every_s)
    return settings


def _data_addresses(top: Mapping[str, object]) -> tuple[Allowed, ...] | None:
    """Those that jobs may name; None: the site file says nothing of them."""
    if "data_addresses" not in top:
        return None
    return parse_addresses(top["data_addresses"], "$.data_addresses")


def _one_runtime(top: Mapping[str, object]) -> None:
    clusters = [key for key in ("pools", "kube", "slurm") if key in top]
    if len(clusters) > 1:
        remedy = "keep one: 'pools' for this host, 'kube' or 'slurm' for a cluster that this host reaches"
        raise Invalid(f"does not go with '{clusters[0]}'", field=f"$.{clusters[1]}", remedy=remedy)


def _images(top: Mapping[str, object]) -> Images | None:
    if "images" not in top:
        return None
    if "kube" in top:
        remedy = "leave it out: pods are containers"
        raise Invalid("does not go with 'kube'", field="$.images", remedy=remedy)
    return parse_images(top["images"], "$.images")


def _inputs_cache(top: Mapping[str, object]) -> int | None:
    if "inputs_cache" not in top:
        return None
    return fields.size_bytes(top["inputs_cache"], "$.inputs_cache", high_mib=_MAX_MIB)


def _site(top: Mapping[str, object]) -> Site:
    labels = fields.pairs(top.get("labels", {}), "$.labels", limit=100)
    if "region" in top:
        labels = {"region": fields.text(top["region"], "$.region", limit=200)} | labels
    price = top.get("price_per_gpu_hour")
    observed = "kube" in top or "slurm" in top
    pools = () if observed else _pools(top.get("pools"))
    names = None if observed else tuple(pool.name for pool in pools)
    return Site(
        name=fields.name(top["site"], "$.site"),
        pools=pools,
        lend=parse_lend(fields.mapping(top.get("lend", {}), "$.lend"), names),
        labels=labels,
        price_usd_gpu_h=None if price is None else fields.money_usd(price, "$.price_per_gpu_hour"),
    )


def _pools(value: object) -> tuple[HostPool, ...]:
    if value is None:
        return _found_pools()
    if not isinstance(value, list) or not value:
        raise Invalid(
            "is not a list of pools", field="$.pools", remedy="write '- name: a100' and what its hosts have"
        )
    pools: list[HostPool] = []
    for index, each in enumerate(value):
        path = f"$.pools[{index}]"
        given = fields.mapping(each, path)
        pool = _pool(given, path)
        shares = fields.whole(given.get("shared", 0), f"{path}.shared", low=0, high=pool.gpus_per_node)
        made = with_shares(pool, shares)
        for name in {pool.name for pool in made} & {pool.name for pool in pools}:
            raise Invalid(f"{name!r} is the name of two pools", field=f"{path}.name", remedy="rename one")
        pools += made
    return tuple(pools)


def _found_pools() -> tuple[HostPool, ...]:
    """This host as it is: one pool, or one for each make of its GPUs with a share of all else."""
    makes = _makes("$.pools")
    whole = _pool({"name": "default", "gpus_per_node": 0}, "$.pools")
    gpus = sum(make.number for make in makes)
    return tuple(
        msgspec.structs.replace(
            whole,
            name=make.model.lower() if len(makes) > 1 else whole.name,
            model=make.model,
            gpu_memory_mib=make.memory_mib,
            gpus_per_node=make.number,
            cpus_milli_per_node=whole.cpus_milli_per_node * make.number // gpus,
            memory_mib_per_node=whole.memory_mib_per_node * make.number // gpus,
        )
        for make in makes
    ) or (whole,)


def _makes(path: str) -> tuple[nvml.Make, ...]:
    try:
        return nvml.makes()
    except nvml.DriverTrouble as error:
        remedy = "fix the driver, or set 'gpus_per_node' and 'model' of each pool"
        raise Invalid(str(error), field=path, remedy=remedy) from None


def _make(pool: Mapping[str, object], path: str) -> nvml.Make | None:
    """What GPUs of the host a pool has that does not say how many."""
    makes = _makes(path)
    if "model" in pool:
        model = read_model(pool["model"], f"{path}.model")
        return next((make for make in makes if is_of(model, make.model)), None)
    if len(makes) > 1:
        models = ", ".join(make.model for make in makes)
        remedy = "make a pool of each, with 'model: …'; a pool without GPUs has 'gpus_per_node: 0'"
        raise Invalid(f"is missing: this host has {models}", field=f"{path}.model", remedy=remedy)
    return makes[0] if makes else None


def _pool(pool: Mapping[str, object], path: str) -> HostPool:
    """A declared pool. A host that declares no GPUs is asked; what is declared wins."""
    fields.known_only(pool, path, POOL_KEYS)
    if "name" not in pool:
        raise Invalid("is missing", field=f"{path}.name", remedy="give the pool a name")
    nodes = fields.whole(pool.get("nodes", 1), f"{path}.nodes", low=1, high=10_000)
    found = None if "gpus_per_node" in pool else _make(pool, path)
    gpus = fields.whole(
        pool.get("gpus_per_node", found.number if found else 0), f"{path}.gpus_per_node", low=0, high=1024
    )
    model = read_model(pool["model"], f"{path}.model") if "model" in pool else (found.model if found else "")
    if gpus and not model:
        raise Invalid("is missing", field=f"{path}.model", remedy="name the GPUs, for example 'model: A100'")
    memory = found.memory_mib if found else 0
    if "gpu_memory" in pool:
        memory = fields.size_mib(pool["gpu_memory"], f"{path}.gpu_memory", high_mib=_MAX_MIB)
    return HostPool(
        name=fields.name(pool["name"], f"{path}.name"),
        model=model,
        gpu_memory_mib=memory,
        nodes=nodes,
        gpus_per_node=gpus,
        cpus_milli_per_node=_cpus_milli(pool, path, nodes),
        memory_mib_per_node=_memory_mib(pool, path, nodes),
    )


def _cpus_milli(pool: Mapping[str, object], path: str, nodes: int) -> int:
    if "cpus_per_node" in pool:
        return round(
            fields.number(pool["cpus_per_node"], f"{path}.cpus_per_node", low=0, high=100_000) * 1000
        )
    return len(os.sched_getaffinity(0)) * 1000 // nodes


def _memory_mib(pool: Mapping[str, object], path: str, nodes: int) -> int:
    if "memory_per_node" in pool:
        return fields.size_mib(pool["memory_per_node"], f"{path}.memory_per_node", high_mib=_MAX_MIB)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 // nodes


def _url(value: object, path: str) -> str:
    """One URL, or those of all dispatchers with commas in between."""
    urls = [url.strip().rstrip("/") for url in fields.text(value, path, limit=4000).split(",")]
    for url in urls:
        if not re.fullmatch(r"https?://[^/\s].*", url):
            raise Invalid(
                f"{url!r} is not a URL", field=path, remedy="write for example http://127.0.0.1:7070"
            )
    return ",".join(urls)


def _address(value: object) -> str:
    address = fields.text(value, "$.address", limit=253)
    if re.search(r"[\s/\[\]]", address):
        remedy = "write for example 10.0.0.5, without a port"
        raise Invalid(f"{address!r} is not an address", field="$.address", remedy=remedy)
    return address


def _notices(environ: Mapping[str, str]) -> str:
    """The address is that of Amazon's own tools."""
    if environ.get(NOTICES_VARIABLE) != "ec2":
        return ""
    return (environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or EC2_METADATA).rstrip("/")


def _ca(value: object) -> str:
    """A file, from here on by its whole path; or the text itself, on a machine that has no file of ours."""
    text = fields.text(value, "$.ca", limit=65536)
    return text if PEM in text else str(Path(text).absolute())


def _clock(value: object) -> str:
    text = fields.text(value, "$.clock", limit=100)
    try:
        parse_clock(text)
    except ValueError as error:
        raise Invalid(str(error), field="$.clock") from None
    return text


def _passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the agent's environment that jobs may see: where programs, homes and libraries are, and nothing secret."""
    passed = {name: value for name, value in environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    return {"PATH": os.defpath, "HOME": "/", "HOSTNAME": socket.gethostname()} | passed
