"""What jobs of a problem file are made of, and the kinds of numbers in it."""

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=10**12)]
Taken = Annotated[int, Meta(ge=1, le=10**12)]
Bytes = Annotated[int, Meta(ge=0, le=10**18)]
MOST_RANKS, MOST_HOSTS, MOST_FORMS = 4096, 100_000, 15
"""As in job files, and as agents may report."""
Ranks = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
Hosts = Annotated[int, Meta(ge=1, le=MOST_HOSTS)]
Amount = Annotated[float, Meta(ge=0, le=1e12)]
Used = Annotated[float, Meta(ge=0, le=1e15)]
"""Of a row, in its unit."""
Seconds = Annotated[float, Meta(ge=0, le=1e10)]
Moment = Annotated[float, Meta(ge=0, le=2.5e11)]
"""Until the year 9892: what is said of it is a date."""
Rate = Annotated[float, Meta(ge=0, le=1e6)]
"""Per hour."""
Ratio = Annotated[float, Meta(ge=1e-6, le=1e6)]
Name = Annotated[str, Meta(min_length=1)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all parts of the file have in common: unknown fields are refused, and what has its default is not written."""


class FreeHosts(_Part, frozen=True, kw_only=True):
    """So many hosts that each have this much free."""

    hosts: Hosts = 1
    """How many."""
    gpus: Count = 0
    """Free GPUs of each."""
    cpus_milli: Count = 0
    """Free CPUs of each, in thousandths of a core."""
    memory_mib: Count = 0
    """Free memory of each."""


class RefusedSite(_Part, frozen=True, kw_only=True):
    """A site that is left alone for a while."""

    site: Name
    """Its name."""
    until_at: Moment
    """Until then."""


class InputData(_Part, frozen=True, kw_only=True):
    """Data that is to be where the job runs before it starts."""

    uri: Name
    """What it is; rules of type `dataset` say where it lies."""
    size_bytes: Bytes | None = None
    """How much; left out: as its `dataset` rule says."""


class ProblemStock(_Part, frozen=True, kw_only=True):
    """What machines of several offers are taken from together, such as a quota of a family."""

    name: Name
    """Unique at the provider; offers that say the same name draw on it together."""
    limit: Count
    """How much there is in all."""
    each: Taken = 1
    """What one instance of this offer takes."""
    used: Count = 0
    """What is taken of it already."""
    unit: str = "machines"
    """In what it is counted: `vCPUs`, `GPUs`."""


class ProblemForm(_Part, frozen=True, kw_only=True):
    """Another way in which a job may run; a job's own figures are form 0, with throughput 1."""

    nodes: Ranks = 1
    """Ranks of the gang."""
    gpus_per_node: Count = 0
    """GPUs of each rank; where it is `shared` thousandths of one."""
    shared: bool = False
    """It asks for part of a GPU per rank."""
    cpus_milli_per_node: Count = 0
    """CPUs of each rank, in thousandths of a core."""
    memory_mib_per_node: Count = 0
    """Memory of each rank."""
    models: tuple[str, ...] = ()
    """GPU models that will do; empty: any."""
    gpu_memory_mib: Count = 0
    """Memory that each GPU must have at least."""
    throughput: Ratio = 1.0
    """Over that of form 0: the run time is that much shorter."""
    option: Count = 0
    """Which entry of its job's list it is a width of."""


class ProblemOutside(_Part, frozen=True, kw_only=True):
    """What jobs that the file leaves out are expected to use of a row: `used` in its unit; `usd`: what one unit less would cost them."""

    used: Used
    """So much of the row they are expected to use, in its unit."""
    usd: Amount
    """USD that one unit less would cost them."""


class ProblemLead(_Part, frozen=True, kw_only=True):
    """What a plan of the whole line rents now for one class, in one form."""

    job: str
    """The first of its class in the problem."""
    place: str
    """The offer's `PROVIDER/NAME`."""
    jobs: Amount
    """For so many, and parts of them."""
    form: Count = 0
    """The job's form, by number."""


class ProblemSpend(_Part, frozen=True, kw_only=True):
    """Money under one capped policy in its present period."""

    policy: Name
    """The policy."""
    period: str
    """Its period: `day`, `week`, `month` or `total`."""
    spent_usd: Amount
    """Paid."""
    committed_usd: Amount
    """Still to pay in the worst case."""
    share: str = ""
    """Of which of the policy's caps: the queue or owner that it is for."""
