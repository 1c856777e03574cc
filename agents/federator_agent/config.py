"""`site.yaml`, a rented machine's user data, and the environment, into settings. Nothing else in the agent reads these.

All that is wrong is told at once, with the file, the line, the field and the remedy. What the file does not say about the host is looked up on it.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.route import PEM
from federator.model.sites import SiteKind
from federator.wire.decoding import decode
from federator.wire.faults import read_whole, told_in
from federator.wire.local_submit import DEFAULT_SOCKET
from federator.wire.yamltext import read_document
from federator_agent import gpu_probe
from federator_agent.core.lent_capacity import HostPool, Site, is_of, with_shares
from federator_agent.data.allowed import Allowed, allowed_of
from federator_agent.electricity import Electricity
from federator_agent.gpu_probe import GpuProbe
from federator_agent.gpus import CUDA_VISIBLE_DEVICES, DriverTrouble, Library, Make, makes
from federator_agent.images import Images, images_of
from federator_agent.kube.settings import KubeSettings
from federator_agent.kube.settings import check as check_kube
from federator_agent.lent import lending_of
from federator_agent.link_limits import LinkLimits
from federator_agent.local.gpu_tests import GpuTest
from federator_agent.local.isolation import Isolation, isolation_of
from federator_agent.local_submit import LocalSubmit
from federator_agent.metadata import Notices
from federator_agent.multikueue.settings import MultiKueueSettings
from federator_agent.secrets import Secret, secrets_of
from federator_agent.site_file import Pool, SiteFile, UserData
from federator_agent.slurm.settings import SlurmSettings

USER_DATA_VARIABLE = "FEDERATOR_USER_DATA_FILE"
STATE_DIR_VARIABLE = "FEDERATOR_AGENT_STATE_DIR"
"""Where the agent keeps its state when its file does not say: set by a provider that has a place for it."""
UNWATCHED_VARIABLE = "FEDERATOR_NO_GPU_WATCH"
"""Set by who makes up machines: the GPUs that they declare are not those of this host."""
NOTICES_VARIABLE = "FEDERATOR_NOTICES"
"""`ec2`, `gce` or `azure` on a machine that its provider may take back, and tells so by that cloud's metadata service."""
METADATA = "http://169.254.169.254"
DEFAULT_STATE_DIR = "/var/lib/federator-agent"
_PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "FEDERATOR_INSTANCE_DIR",  # by which the local provider finds what is left of a dead machine
)  # fmt: skip
_PROXIES = ("https_proxy", "http_proxy", "no_proxy")


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
    as_json: bool = False
    """How logs are written."""
    report_every_s: float | None = None
    """How often to report, in clock seconds; None: as the dispatcher says."""
    join_token: str = ""
    kube: KubeSettings | None = None
    """The Kubernetes cluster whose pods run the work, if one does."""
    slurm: SlurmSettings | None = None
    """The Slurm cluster whose jobs run the work, if one does."""
    multikueue: MultiKueueSettings | None = None
    """The cluster of a MultiKueue for which the agent stands, if it does."""
    notices: Notices | None = None
    """The metadata service that says when this machine is taken back; None: nobody takes it back."""
    watch_gpus: bool = True
    """Whether GPUs of this host that ail take no new work."""
    electricity: Electricity = Electricity()
    """What electricity costs and emits here."""
    gpu_probe: GpuProbe | None = None
    """What counts this host's GPUs; None: NVIDIA's driver."""
    gpu_test: GpuTest | None = None
    """What shows that a faulty GPU is good for work again; None: faults stay until the driver tells of none."""
    ca: str = ""
    """PEM file of the authority behind the dispatcher's certificate, or its text; empty: the authorities that this host knows."""
    proxy: str = ""
    """URL of the proxy to the dispatcher, or `none`; empty: as `proxies` say."""
    link: LinkLimits = LinkLimits()
    """How much of the link to the dispatcher is used."""
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
    local_submit: LocalSubmit | None = None
    """Who of this host may submit to the agent itself while the site is cut off; None: nobody."""
    proxies: dict[str, str] = {}
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the agent's own environment. Jobs do not get them: they may hold a password."""
    environment: dict[str, str] = {}
    """What jobs get of the agent's own environment."""


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> AgentSettings:
    """Settings from a site file, or without one from the user data that the environment names. Raises `Invalid`."""
    user_data, record = environ.get(USER_DATA_VARIABLE), SiteFile
    if path is None:
        if not user_data:
            raise Invalid(
                "no site file is given", remedy=f"use --config site.yaml, or set {USER_DATA_VARIABLE}"
            )
        path, record = Path(user_data), UserData
    try:
        text = path.read_text()
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror}", remedy="check the path and its permissions") from None
    return parse(text, str(path), environ, record, path.parent)


def parse(
    text: str,
    source: str,
    environ: Mapping[str, str],
    record: type[SiteFile] = SiteFile,
    folder: Path = Path(),
) -> AgentSettings:
    """Settings from YAML text, whose relative paths are of `folder`. Raises `Invalid` that says where in `source`, or an ExceptionGroup of all that is wrong."""
    with told_in(source):
        document = read_document(text)
    folder = folder.absolute()
    return read_whole(lambda value: _settings(decode(value, record, "$"), environ, folder), document, source)


def _settings(file: SiteFile, environ: Mapping[str, str], folder: Path) -> AgentSettings:
    _check(file)
    kube = file.kube
    if kube is not None and kube.kubeconfig:
        kube = msgspec.structs.replace(kube, kubeconfig=str(folder / kube.kubeconfig))
    kueue = file.multikueue
    if kueue is not None and kueue.kubeconfig:
        kueue = msgspec.structs.replace(kueue, kubeconfig=str(folder / kueue.kubeconfig))
    secrets = secrets_of(file.secrets, "$.secrets", kube=kube is not None)
    return AgentSettings(
        site=_site(file),
        kube=kube,
        slurm=file.slurm,
        multikueue=kueue,
        kind=file.kind,
        dispatcher=file.dispatcher,
        member=file.member,
        address=file.address,
        join_token=file.join_token if isinstance(file, UserData) else "",
        environment=_passed_on(environ),
        clock=file.clock,
        as_json=file.log_format == "json",
        ca=file.ca if not file.ca or PEM in file.ca else str(folder / file.ca),
        proxy=file.proxy,
        link=file.link,
        inputs_cache_bytes=file.inputs_cache,
        data_addresses=None if file.data_addresses is None else allowed_of(file.data_addresses),
        data_networks=file.data_networks,
        secrets={
            name: each if each.file is None else msgspec.structs.replace(each, file=folder / each.file)
            for name, each in secrets.items()
        },
        isolation=isolation_of(file.isolation, environ),
        local_submit=None
        if file.local_submit is None
        else msgspec.structs.replace(
            file.local_submit, socket=folder / (file.local_submit.socket or DEFAULT_SOCKET)
        ),
        proxies={name: value for name, value in environ.items() if name.lower() in _PROXIES},
        images=images_of(file.images),
        notices=_notices(environ),
        host_key=None if file.host_key is None else folder / file.host_key,
        watch_gpus=file.watch_gpus and kueue is None and UNWATCHED_VARIABLE not in environ,
        electricity=file.electricity,
        gpu_probe=file.gpu_probe,
        gpu_test=file.gpu_test,
        state_dir=folder / (file.state_dir or environ.get(STATE_DIR_VARIABLE) or DEFAULT_STATE_DIR),
        report_every_s=file.report_every,
    )


def _check(file: SiteFile) -> None:
    """What does not go together."""
    clusters = [key for key in ("pools", "kube", "slurm") if getattr(file, key) is not None]
    if len(clusters) > 1:
        remedy = "keep one: 'pools' for this host, 'kube' or 'slurm' for a cluster that this host reaches"
        raise Invalid(f"does not go with '{clusters[0]}'", field=f"$.{clusters[1]}", remedy=remedy)
    if file.multikueue is not None and clusters != ["pools"]:
        remedy = "write what that cluster has as pools, and leave out kube and slurm"
        raise Invalid("wants 'pools'", field="$.multikueue", remedy=remedy)
    if clusters in (["kube"], ["slurm"]) and file.isolation is not None:
        remedy = f"leave it out: {clusters[0]} keeps jobs apart by its own means"
        raise Invalid(f"does not go with '{clusters[0]}'", field="$.isolation", remedy=remedy)
    if file.local_submit is not None and (clusters in (["kube"], ["slurm"]) or file.multikueue is not None):
        remedy = "leave it out: people of a cluster submit to its own scheduler"
        raise Invalid("is for sites whose jobs are processes", field="$.local_submit", remedy=remedy)
    file.electricity.check("$.electricity")
    if file.gpu_test is not None and (clusters in (["kube"], ["slurm"]) or not file.watch_gpus):
        because = "is for GPUs that the agent watches"
        remedy = (
            "leave it out: a cluster tests its own nodes"
            if file.watch_gpus
            else "leave out watch_gpus: false"
        )
        raise Invalid(because, field="$.gpu_test", remedy=remedy)
    _check_probe(file, of_cluster=clusters in (["kube"], ["slurm"]))
    if file.kube is not None:
        check_kube(file.kube)
        if file.images is not None:
            remedy = "leave it out: pods are containers"
            raise Invalid("does not go with 'kube'", field="$.images", remedy=remedy)


def _check_probe(file: SiteFile, *, of_cluster: bool) -> None:
    if file.gpu_probe is None:
        return
    if of_cluster or file.multikueue is not None:
        remedy = "leave it out: a cluster counts its own devices"
        raise Invalid("is for GPUs of this host", field="$.gpu_probe", remedy=remedy)
    if file.gpu_probe.visible == CUDA_VISIBLE_DEVICES:
        return
    if images_of(file.images) is not None:
        remedy = "leave out images: containers are given devices of NVIDIA only"
        raise Invalid("does not go with 'images'", field="$.gpu_probe", remedy=remedy)
    if shared := next((pool.name for pool in file.pools or () if pool.shared), None):
        remedy = "leave out 'shared': nothing holds jobs to a part of such a device"
        raise Invalid(
            f"does not go with the shared GPUs of pool {shared}", field="$.gpu_probe", remedy=remedy
        )


def _site(file: SiteFile) -> Site:
    observed = file.kube is not None or file.slurm is not None
    pools = () if observed else _pools(file.pools, gpu_probe.library(file.gpu_probe))
    return Site(
        name=file.site,
        pools=pools,
        lend=lending_of(file.lend, None if observed else [pool.name for pool in pools]),
        labels=({"region": file.region} if file.region else {}) | file.labels,
        price_usd_gpu_h=file.price_per_gpu_hour,
        electricity=file.electricity,
    )


def _pools(written: tuple[Pool, ...] | None, library: Library) -> tuple[HostPool, ...]:
    if written is None:
        return _found_pools(library)
    pools: list[HostPool] = []
    for index, each in enumerate(written):
        path = f"$.pools[{index}]"
        pool = _pool(each, path, library)
        if each.shared > pool.gpus_per_node:
            remedy = f"write at most {pool.gpus_per_node}"
            raise Invalid(f"cannot be {each.shared}", field=f"{path}.shared", remedy=remedy)
        made = with_shares(pool, each.shared)
        for name in {pool.name for pool in made} & {pool.name for pool in pools}:
            raise Invalid(f"{name!r} is the name of two pools", field=f"{path}.name", remedy="rename one")
        pools += made
    return tuple(pools)


def _found_pools(library: Library) -> tuple[HostPool, ...]:
    """This host as it is: one pool, or one for each make of its GPUs with a share of all else."""
    found = _makes("$.pools", library)
    whole = _pool(Pool("default", gpus_per_node=0), "$.pools", library)
    gpus = sum(make.number for make in found)
    return tuple(
        msgspec.structs.replace(
            whole,
            name=make.model.lower() if len(found) > 1 else whole.name,
            model=make.model,
            gpu_memory_mib=make.memory_mib,
            gpus_per_node=make.number,
            cpus_milli_per_node=whole.cpus_milli_per_node * make.number // gpus,
            memory_mib_per_node=whole.memory_mib_per_node * make.number // gpus,
        )
        for make in found
    ) or (whole,)


def _makes(path: str, library: Library) -> tuple[Make, ...]:
    try:
        return makes(library)
    except DriverTrouble as error:
        remedy = "fix the driver, or set 'gpus_per_node' and 'model' of each pool"
        raise Invalid(str(error), field=path, remedy=remedy) from None


def _make(pool: Pool, path: str, library: Library) -> Make | None:
    """What GPUs of the host a pool has that does not say how many."""
    found = _makes(path, library)
    if pool.model is not None:
        model = pool.model
        return next((make for make in found if is_of(model, make.model)), None)
    if len(found) > 1:
        models = ", ".join(make.model for make in found)
        remedy = "make a pool of each, with 'model: …'; a pool without GPUs has 'gpus_per_node: 0'"
        raise Invalid(f"is missing: this host has {models}", field=f"{path}.model", remedy=remedy)
    return found[0] if found else None


def _pool(pool: Pool, path: str, library: Library) -> HostPool:
    """A declared pool. A host that declares no GPUs is asked; what is declared wins."""
    found = _make(pool, path, library) if pool.gpus_per_node is None else None
    gpus = pool.gpus_per_node if pool.gpus_per_node is not None else found.number if found else 0
    model = pool.model or (found.model if found else "")
    if gpus and not model:
        raise Invalid("is missing", field=f"{path}.model", remedy="name the GPUs, for example 'model: A100'")
    cpus = len(os.sched_getaffinity(0)) / pool.nodes if pool.cpus_per_node is None else pool.cpus_per_node
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 // pool.nodes
    return HostPool(
        name=pool.name,
        model=model,
        gpu_memory_mib=pool.gpu_memory_mib or (found.memory_mib if found else 0),
        nodes=pool.nodes,
        gpus_per_node=gpus,
        cpus_milli_per_node=round(cpus * 1000),
        memory_mib_per_node=pool.memory_mib_per_node or memory,
        labels=tuple(sorted(pool.labels.items())),
    )


def _notices(environ: Mapping[str, str]) -> Notices | None:
    """The address is the clouds' own, and their tools' variables replace it."""
    cloud = environ.get(NOTICES_VARIABLE)
    if cloud == "ec2":
        return Notices(cloud, (environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or METADATA).rstrip("/"))
    if cloud == "gce":
        host = environ.get("GCE_METADATA_HOST")
        return Notices(cloud, f"http://{host}" if host else METADATA)
    if cloud == "azure":
        return Notices(cloud, (environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or METADATA).rstrip("/"))
    return None


def _passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the agent's environment that jobs may see: where programs, homes and libraries are, and nothing secret."""
    passed = {name: value for name, value in environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    return {"PATH": os.defpath, "HOME": "/", "HOSTNAME": socket.gethostname()} | passed
