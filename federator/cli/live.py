"""World and load from a running dispatcher, for simulations: `simulate --from-live` and `policy replay`."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from federator.cli.contrast import put
from federator.cli.phrases import moment_at
from federator.cli.session import Connection, ask
from federator.kernel.errors import Invalid

if TYPE_CHECKING:
    from federator.client import Verbs
    from federator.simulation.live import Live
    from federator.simulation.work import TraceJob
    from federator.simulation.world import WorldSpec

LIVE = Group("From a running dispatcher", sort_key=80)
WHAT_IF = Group("What if", sort_key=70)


@Parameter(name="*", group=LIVE)
@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """What is taken from a dispatcher, and kept."""

    from_live: Annotated[
        bool,
        Parameter(
            negative="", help="Take world, policies and load from the dispatcher; needs the role platform."
        ),
    ] = False
    since: Annotated[str, Parameter(help="The load of so long a time until now.")] = "7d"
    save_world: Annotated[
        Path | None, Parameter(help="Keep the world in this YAML file, and its policies beside it.")
    ] = None
    save_trace: Annotated[Path | None, Parameter(help="Keep the load in this CSV file.")] = None


@Parameter(name="*", group=WHAT_IF)
@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """Changes to the world; both worlds are then run, and compared."""

    add_pool: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="More hosts, as SITE=GPUSxMODELxNODES: lab=8xH100x4 is four hosts with eight H100 each. A new name is a new site.",
        ),
    ] = ()
    drain: Annotated[
        tuple[str, ...],
        Parameter(
            negative="", help="A site at which nothing starts, or a cloud's from which nothing is rented."
        ),
    ] = ()
    price: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="Another price, as SITE=USD per GPU-hour or OFFER=USD per machine and hour: lab=0.30.",
        ),
    ] = ()

    def __bool__(self) -> bool:
        return bool(self.add_pool or self.drain or self.price)


def take(since: str, connection: Connection) -> "Live":
    """The dispatcher's world, policies in force, and load of so long a time."""
    from federator.simulation.live import taken

    length_s = since_s(since)

    async def asked(client: "Verbs") -> "Live":
        world = await client.recorded_world()
        since_at = max(0.0, world.taken_at - length_s)
        jobs, left_out = await client.recorded_jobs(since_at)
        current = await client.policies()
        text = "---\n".join(document.text.rstrip("\n") + "\n" for document in current.documents)
        return taken("the live world", world, jobs, since_at, policies=text, left_out=left_out)

    return ask(connection, asked)[0]


def since_s(since: str) -> float:
    """`--since` in seconds. Raises `Invalid`."""
    now = time.time()
    length_s = now - moment_at(since, "--since", now)
    if not 0 < length_s <= 400 * 86_400:
        raise Invalid("must be a time of up to 400 days", field="--since", remedy="write for example 7d")
    return length_s


def save(world: "WorldSpec", jobs: "tuple[TraceJob, ...]", options: LiveOptions) -> None:
    """Keep what was taken, as files that `--world` and `--trace` take."""
    from federator.simulation.saving import trace_csv, world_yaml

    if options.save_world is not None:
        name = ""
        if world.policies:
            policies = options.save_world.with_name(f"{options.save_world.stem}.policies.yaml")
            put(policies, world.policies)
            name = policies.name
        put(options.save_world, world_yaml(world, name))
    if options.save_trace is not None:
        put(options.save_trace, trace_csv(jobs))
