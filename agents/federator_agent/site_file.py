"""`site.yaml` as it is written: every key with its type, and below it what it means. `federator_agent.config` makes settings of it.

Relative paths are of the folder that the file is in.
"""

import re
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from federator.kernel.clock import parse_clock
from federator.kernel.errors import Invalid
from federator.model.sites import SiteKind
from federator.wire import fields
from federator.wire.accelerators import Model
from federator_agent.data.allowed import Addresses
from federator_agent.data.reach import Network
from federator_agent.electricity import Electricity
from federator_agent.gpu_probe import GpuProbe
from federator_agent.images import NONE, Engine, Images
from federator_agent.kube.settings import KubeSettings
from federator_agent.lent import Lend
from federator_agent.link_limits import LinkLimits
from federator_agent.local.gpu_tests import GpuTest
from federator_agent.local.isolation import Isolation, Mode
from federator_agent.local_submit import LocalSubmit
from federator_agent.multikueue.settings import MultiKueueSettings
from federator_agent.secrets import Secrets
from federator_agent.slurm.settings import SlurmSettings

MAX_MIB = 2**30


def _url(value: object, path: str) -> str:
    """One URL, or those of all dispatchers with commas in between."""
    urls = [url.strip().rstrip("/") for url in fields.text(value, path, limit=4000).split(",")]
    for url in urls:
        if not re.fullmatch(r"https?://[^/\s].*", url):
            raise Invalid(
                f"{url!r} is not a URL", field=path, remedy="write for example http://127.0.0.1:7070"
            )
    return ",".join(urls)


def _address(value: object, path: str) -> str:
    address = fields.text(value, path, limit=253)
    if re.search(r"[\s/\[\]]", address):
        remedy = "write for example 10.0.0.5, without a port"
        raise Invalid(f"{address!r} is not an address", field=path, remedy=remedy)
    return address


def _clock(value: object, path: str) -> str:
    text = fields.text(value, path, limit=100)
    try:
        parse_clock(text)
    except ValueError as error:
        raise Invalid(str(error), field=path) from None
    return text


Memory = Annotated[int, fields.size("512GiB", high_mib=MAX_MIB)]
Bytes = Annotated[int, fields.size("500GiB", high_mib=MAX_MIB, read=fields.size_bytes)]


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes of one shape. What is left out is looked up on the host."""

    name: fields.Name
    """The pool's name."""
    model: Model | None = None
    """GPU model. Left out: as found."""
    gpu_memory_mib: Memory | None = field(name="gpu_memory", default=None)
    """Memory of each GPU. Left out: as found."""
    nodes: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """How many nodes of this shape the agent runs work on."""
    gpus_per_node: Annotated[int, Meta(ge=0, le=1024)] | None = None
    """GPUs of each. Left out: as found."""
    cpus_per_node: Annotated[float, Meta(ge=0, le=100_000)] | None = None
    """Cores of each. Left out: as found."""
    memory_mib_per_node: Memory | None = field(name="memory_per_node", default=None)
    """Memory of each. Left out: as found."""
    labels: fields.PoolLabels = {}
    """What its nodes have in common beyond the site's labels."""
    shared: Annotated[int, Meta(ge=0, le=1024)] = 0
    """So many GPUs of each are shared: they make a pool of their own, `NAME-shared`, for jobs that ask for a part of a GPU. `lend` names it by that."""


class SiteFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site of the federation."""

    site: Annotated[fields.Name, Meta(examples=["basel"])]
    """The site's name in the federation."""
    kind: SiteKind | None = None
    """What sort of site it is, as a note: what counts is what its join token was made with."""
    region: Annotated[str, fields.short(200, "eu-central")] = ""
    """Short for the label `region`. It counts for policies as it is when the site joins, where no administrator's token names another."""
    labels: fields.Labels = {}
    """Free words that jobs and policies can select by."""
    price_per_gpu_hour: fields.Money | None = None
    """What an hour of one of its GPUs costs at the margin (power, wear; wear alone where `electricity` has `gpu_watts`), for plans and reports. `0` says that it costs nothing. Left out: in plans alone, an eighth of its model's list price."""
    electricity: Electricity = Electricity()
    """What electricity costs and emits at the site, for `federator usage`: `{usd_per_kwh: 0.24, gco2_per_kwh: 40}`; with `gpu_watts` for plans, too. Left out: nothing is told of it."""
    pools: Annotated[tuple[Pool, ...], Meta(min_length=1)] | None = None
    """Nodes of one shape. Left out: one pool, as found on the host."""
    kube: KubeSettings | None = None
    """Instead of `pools`: a Kubernetes cluster whose pods run the work."""
    slurm: SlurmSettings | None = None
    """Instead of `pools`: a Slurm cluster whose jobs run the work."""
    multikueue: MultiKueueSettings | None = None
    """Beside `pools`, which say what that cluster has: a cluster of a MultiKueue, which is nominated for Workloads that Kueue carries out."""
    lend: Lend = Lend()
    dispatcher: Annotated[str, fields.written(_url, "http://127.0.0.1:7070", pattern=r"^\s*https?://")] = ""
    """Where the agent dials to; of several dispatchers all, with commas in between. Left out: as joined."""
    member: fields.Name = ""
    """This agent's own name, such as `basel-2`, where a site has several. Left out: the site's name."""
    address: Annotated[str, fields.written(_address, "10.0.0.5", pattern=r"^[^\s/\[\]]+$")] = ""
    """Under which the site's other members reach this host. Needed where that way is a tunnel or a proxy on the host itself. Left out: its address on the way to the dispatcher."""
    ca: Annotated[str, fields.short(65536, "/etc/federator/ca.pem")] = ""
    """The authority behind the dispatcher's certificate: a PEM file, or its text. Left out: those that this host knows."""
    proxy: Annotated[str, fields.short(1000, "http://proxy:3128", "none")] = ""
    """The proxy on the way to the dispatcher. Left out: as `HTTPS_PROXY` and its like say."""
    secrets: Secrets = {}
    """By name, what jobs that ask for it get as variables, such as `{wandb: /etc/federator/wandb.env}`: a file of `NAME=value` lines, on a Kubernetes site a Secret of the namespace; or a mapping."""
    data_addresses: Addresses | None = None
    """Which addresses jobs may name for inputs and checkpoints: these and all below them, such as `[s3://public, {address: s3://genomics, queues: [research]}]`. `[]`: none. The agent's own folder is nobody's to name. Left out: all; where jobs have other rights than the agent, no files for checkpoints."""
    data_networks: tuple[Network, ...] = ()
    """Networks of the site's own from whose servers inputs are fetched by `http(s)`. Without a word of it only the public Internet is asked: no address of the host itself, of a private network, or of a cloud's metadata service, whatever name stands for it."""
    isolation: Mode | Isolation | None = None
    """How jobs are kept apart from each other and from the agent, where they are processes of this host: a mode, or a mapping. Left out: the strongest mode that works."""
    images: (
        Annotated[str, fields.written(partial(fields.one_of, choices=(*Engine, NONE)), enum=[*Engine, NONE])]
        | Images
        | None
    ) = None
    """By which program jobs run in the `image` that they name, at hosts and under Slurm. On a Kubernetes site it is left out. Left out: `none`."""
    link: LinkLimits = LinkLimits()
    inputs_cache: Bytes | None = None
    """How much of the disk the inputs of jobs may keep. What is not in use goes first, the least recently read. Left out: half of the file system."""
    local_submit: LocalSubmit | None = None
    """Who of this host may submit to the agent itself while the site is cut off. Only where jobs are processes of this host. Left out: nobody."""
    state_dir: fields.FilePath | None = None
    """Where identity, running work and unsent results live. Left out: `/var/lib/federator-agent`."""
    host_key: fields.FilePath | None = None
    """File of the host's second key, made when it joins. It signs for a change of the agent's key: on another disk, or where only root reads, a stolen copy of `state_dir` changes nothing. Left out: `host.key` in `state_dir`."""
    clock: Annotated[str, fields.written(_clock, "system")] = "system"
    """As the dispatcher's; only demonstrations use another. Left out: `system`."""
    log_format: Literal["text", "json"] = "text"
    """Of `serve`. `text`: lines for people; `json`: one object a line, with `trace_id` where it is about one job."""
    watch_gpus: bool = True
    """Whether GPUs of this host that ail, or that others use, take no new work."""
    gpu_probe: GpuProbe | None = None
    """What counts the accelerators of this host where they are not NVIDIA's, such as `{command: python -m federator_agent.amd, visible: ROCR_VISIBLE_DEVICES}`. Left out: NVIDIA's driver."""
    gpu_test: GpuTest | None = None
    """A test that gives a faulty GPU back to work when it passes, such as `{command: dcgmi diag -r 2}`. Left out: a fault stays until the driver tells of none."""
    report_every: Annotated[float, fields.duration("5s", low_s=0.1)] | None = None
    """How often to report when nothing changes. Jobs with `stop_within` are taken only up to `10s`. Left out: as the dispatcher says."""


class UserData(SiteFile, frozen=True, forbid_unknown_fields=True):
    """What a rented machine is started with: a site file, and a token to join with."""

    join_token: fields.Text = ""
    """Made for this machine alone."""
