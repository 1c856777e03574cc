"""The operator's file: which cluster, which dispatcher, and as whom each namespace submits."""

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from federator.kernel.errors import Invalid
from federator.model.jobs import WHOLE_MILLI
from federator.wire import fields
from federator.wire.accelerators import read_accelerators
from federator.wire.decoding import decode
from federator.wire.faults import read_whole, told_in
from federator.wire.yamltext import read_document

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _namespace(value: object, path: str) -> str:
    word = fields.text(value, path, limit=63)
    if not _NAME.fullmatch(word):
        remedy = "use small letters, digits and '-', at most 63"
        raise Invalid(f"{word!r} is not the name of a namespace", field=path, remedy=remedy)
    return word


NamespaceName = Annotated[str, fields.written(_namespace, "research", pattern=f"^{_NAME.pattern}$")]


def _part(value: object, path: str) -> int:
    if value == 1:
        return WHOLE_MILLI
    share = read_accelerators(value, path).share_milli
    if not share:
        raise Invalid(f"{value!r} is no part of a GPU", field=path, remedy="write 1, or for example 0.25")
    return share


Part = Annotated[int, fields.written(_part, "1", "0.25", type=["number", "string"])]


class Tenant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As whom a namespace's jobs are submitted."""

    token_file: fields.FilePath
    """Has the token of a person or a service account of the dispatcher. It is read for each request, so it may be renewed."""
    queue: fields.QueuePath | None = None
    """Where its jobs go. They may name this queue, or one below it, and no other. Left out: as each job says, and as the person's rights allow."""


class Policies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`FederatedPolicy` objects of the cluster are the policies of the federation."""

    token_file: fields.FilePath
    """Has a token with the role `platform`. It is read for each request."""
    apply: bool = True
    """Whether the objects are put in force; else their status says whether they are. Left out: `true`."""


class Sites(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`FederatedSite` objects of the cluster say how the sites are."""

    token_file: fields.FilePath
    """Has a token with the role `admin`, or with `apply: false` any person's. It is read for each request."""
    apply: bool = True
    """Whether a site is drained, and takes work again, as its object's `spec` says; else its status says whether it is so. Left out: `true`."""


class MultiKueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cluster is the manager of a MultiKueue whose `dispatcherName` is none of Kueue's own: Workloads of the namespaces are planned as jobs."""

    check: Annotated[str, fields.short(253, "multikueue")]
    """The name of the `AdmissionCheck` whose controller is MultiKueue: Workloads that have it are planned."""
    sites: Annotated[tuple[fields.Name, ...], Meta(min_length=1), fields.alone(20)]
    """The sites that stand for its clusters: those whose site file has `multikueue`."""
    devices: Annotated[dict[str, Part], Meta(max_length=100)] = {}
    """What is a GPU beside `nvidia.com/gpu`, MIG instances and extended resources of device classes: by the name of a resource, one of Kueue's `deviceClassMappings` for instance, which part of a GPU each unit is, such as `{whole-gpus: 1, nvidia.com/gpu.shared: 0.25}`."""


class OperatorFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the operator works with."""

    dispatcher: Annotated[str, fields.short(4000, "https://federator.example.org")]
    """Where the dispatcher is; of several dispatchers all, with commas in between."""
    namespaces: dict[NamespaceName, Tenant]
    """Each namespace whose jobs are submitted. `FederatedJob` objects elsewhere are refused."""
    ca: Annotated[str, fields.short(4096, "/etc/federator/ca.pem")] = ""
    """PEM file of the authority behind the dispatcher's certificate. Left out: those that this host knows."""
    proxy: Annotated[str, fields.short(1000, "http://proxy:3128", "none")] = ""
    """The proxy on the way to the dispatcher. Left out: as `HTTPS_PROXY` and its like say."""
    kubeconfig: Annotated[str, fields.short(4096, "/etc/federator/kubeconfig")] = ""
    """How the cluster is reached: a file. Left out: the operator is a pod of the cluster."""
    context: Annotated[str, fields.short(1000)] = ""
    """Which cluster of that file. Left out: its current one."""
    multikueue: MultiKueue | None = None
    """Beside `FederatedJob` objects. Left out: the cluster is no such manager."""
    policies: Policies | None = None
    """Left out: the federation's policies are nothing to the cluster."""
    sites: Sites | None = None
    """Left out: the sites are nothing to the cluster."""
    alive_file: Annotated[str, fields.short(4096, "/run/federator/alive")] = ""
    """A file that is kept young while the operator's loop turns. In it stands `starting` until the cluster has answered, then `works` or `stands by`. Left out: none."""
    log_format: Literal["text", "json"] = "text"
    """`text`: lines for people; `json`: one object a line, with `trace_id` where it is about one job."""
    lease_namespace: NamespaceName = "federator"
    """Where operators agree on which of them works. Left out: `federator`."""
    mirror_every: Annotated[float, fields.duration("2s", low_s=0.2, high_s=3600)] = 2.0
    """How often the dispatcher is asked how jobs and sites are. Left out: 2s."""
    forecast_every: Annotated[float, fields.duration("1m", low_s=0.2, high_s=86400)] = 60.0
    """How often at most an object is written because its forecast or its cost has moved, or how much of a site is in use, and nothing else. Left out: 1m."""
    most: Annotated[int, Meta(ge=1, le=100_000)] = 20_000
    """So many objects and Workloads that are not over are looked after; those beyond wait, except those of a namespace that has less than its equal share of them. Left out: 20000."""


def load(path: Path) -> OperatorFile:
    """The file, with relative paths those of its folder. Raises `Invalid`, naming file, line and key, or an ExceptionGroup of all that is wrong."""
    try:
        text = path.read_text()
    except OSError as error:
        raise Invalid(
            f"cannot read {path}: {error.strerror}", remedy="give --config a file that exists"
        ) from None
    with told_in(path):
        document = read_document(text)

    def read(value: object) -> OperatorFile:
        file = decode(value or {}, OperatorFile, "$")
        if not file.namespaces:
            remedy = "write namespaces: {research: {token_file: /etc/federator/research.token}}"
            raise Invalid("names none", field="$.namespaces", remedy=remedy)
        at, policies, sites = path.resolve().parent, file.policies, file.sites
        return msgspec.structs.replace(
            file,
            ca=str(at / file.ca) if file.ca else "",
            kubeconfig=str(at / file.kubeconfig) if file.kubeconfig else "",
            alive_file=str(at / file.alive_file) if file.alive_file else "",
            policies=policies and msgspec.structs.replace(policies, token_file=at / policies.token_file),
            sites=sites and msgspec.structs.replace(sites, token_file=at / sites.token_file),
            namespaces={
                name: msgspec.structs.replace(each, token_file=str(at / each.token_file))
                for name, each in file.namespaces.items()
            },
        )

    return read_whole(read, document, path)
