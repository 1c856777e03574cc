"""Write the pages of docs/reference/ from the code: one small function per page, so that a page cannot say what is not so.

`make docs` writes them; with `--check` nothing is written, and a page that is out of date is named. What a field means is said below it in the code.
"""

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

from federator.cli.schema import SCHEMAS, File
from federator.operator import definition
from federator.wire.schema import record_schema
from tools import event_docs, solver_docs, variable_docs
from tools.console_types import console_types
from tools.record_docs import one_line, page, sections, table

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"


def lifecycles() -> str:
    """Diagrams and edges of every lifecycle."""
    from federator.model import lifecycle

    text = [
        "# Lifecycles",
        (
            "What can become of a job, a placement, a lease and a member, as `federator/model/lifecycle.py` has it. A pair of "
            "status and event that is not listed cannot happen from inside; from outside it is recorded as an anomaly."
        ),
    ]
    tables: dict[str, Mapping[Any, lifecycle.Edge]] = {
        "Job": lifecycle.JOB,
        "Placement": lifecycle.PLACEMENT,
        "Lease": lifecycle.LEASE,
        "Member": lifecycle.MEMBER,
    }
    for name, edges in tables.items():
        rows = ((f"`{status}`", event, f"`{edge.to}`", edge.says) for (status, event), edge in edges.items())
        text += [f"## {name}", _diagram(edges), table(("from", "event", "to", "what happens"), rows)]
    return page(text)


def _diagram(edges: Mapping[tuple[StrEnum, str], Any]) -> str:
    """A lifecycle as Mermaid draws it; events with the same ends share an arrow. The first status listed is where it begins."""
    arrows: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for (status, event), edge in edges.items():
        arrows.setdefault((status, edge.to), []).append(event)
    first = next(iter(edges))[0]
    ends = {after for _, after in arrows} - {before for before, _ in arrows}
    lines = [f"[*] --> {first}"]
    lines += [f"{before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    lines += [f"{end} --> [*]" for end in sorted(ends)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```"])


def settings() -> str:
    """Every setting of the dispatcher, by topic."""
    schema = SCHEMAS["settings"]()
    providers = {
        each["if"]["properties"]["type"]["const"]: each["then"]["properties"]["settings"]
        for each in schema["$defs"]["ProviderSettings"]["allOf"]
    }
    return page([
        "# Settings of the dispatcher",
        (
            "`federator serve --config FILE` reads a YAML file with these keys; whatever it leaves out has the default. "
            "[Variables](environment.md#what-the-dispatcher-reads) override the file, and options override both. "
            "The agent has a [file of its own](site-file.md)."
        ),
        *sections(schema),
        *(
            part
            for name, settings in providers.items()
            for part in (
                f"## Settings of the provider `{name}`",
                f"What stands under `settings` of a provider with `type: {name}`.",
                *sections(schema | settings, "###", f"{name}: "),
            )
        ),
    ])  # fmt: skip


def job_file() -> str:
    """The job file, key by key."""
    from federator.wire.jobfile import JobFile

    moved = table(
        ("written", "here it is"),
        ((f"`{old}`", f"`{new}`") for old, new in sorted(JobFile.elsewhere.items())),
    )
    return page([
        "# The job file",
        "YAML 1.2, for `federator submit -f`, `federator preview -f` and `POST /v1/jobs`. A file that holds only `run:` works.",
        "```yaml\nrun: python train.py\n```",
        "## Keys",
        *sections(SCHEMAS["job"]()),
        "Durations carry a unit (`90s`, `1h30m`, `2d`), and so do sizes (`256GiB`, `80GB`).",
        "## Not supported yet",
        ("Nodes apart (`together: spread`) with parts of GPUs. "
        "A file that uses one is refused and told so: a rule that is silently dropped is worse than an error."),
        "## Names from elsewhere",
        "Other systems' names for the same things are refused with a hint, never guessed at.",
        moved,
    ])  # fmt: skip


def site_file() -> str:
    """The agent's `site.yaml`, key by key."""
    return page([
        "# The site file",
        ("`site.yaml` at the agent says what the site is and what of it the federation may use. The site has the last word: "
        "the dispatcher obeys and shows it. What the file does not say about the host is looked up on it. Relative paths are of the folder that the file is in."),
        "## Keys",
        *sections(SCHEMAS["site"]()),
        "## Whose work",
        ("Wherever the file names work, the same words do: a queue with all below it (`research/vision`, or `queue:research/vision`), `owner:ada`, `team:vision`, "
        "and `*` for everybody. What is there for each by such a name goes by the nearest: the owner, then the team, then the longest queue, then `*`. "
        "A job is of one team at most: the one that its job file names with `team`, else the one by whose right its queue took it. "
        "What its owner's other teams may do, it may not. Policies of kind `Team` say who is in a team; the dispatcher tells the agent a job's team, as it tells its owner and queue."),
    ])  # fmt: skip


def operator_file() -> str:
    """The file of `federator operator`, key by key."""
    return page([
        "# The operator's file",
        ("`federator operator --config FILE` submits the [`FederatedJob` objects](../howto/federated-jobs.md) of a Kubernetes cluster. "
        "Relative paths are of the folder that the file is in."),
        "## Keys",
        *sections(SCHEMAS["operator"]()),
    ])  # fmt: skip


def policies() -> str:
    """The kinds of policies, record by record."""
    from federator_policies.documents import KINDS

    text = [
        "# Policies",
        (
            "YAML documents with `apiVersion: federator/v1`, `kind`, `metadata: {name}` and `spec`, applied as one set. "
            "`policies/examples` has commented sets to start from."
        ),
    ]
    for name, kind in KINDS.items():
        about = (importlib.import_module(type(kind).__module__).__doc__ or "").partition(":")[2]
        text += [
            f"## {name}",
            one_line(about.split("\n\n")[0]).strip().capitalize(),
            *sections(record_schema(kind.spec), "###", f"{name}: "),
        ]
    return page(text)


def reasons() -> str:
    """Why a job does not run at a place: filters and situations, in their order."""
    from federator.planning.rules.feasibility import FILTERS, SITUATIONS

    filters = ((str(n), f"`{each.name}`", each.says) for n, each in enumerate(FILTERS, 1))
    situations = (
        (str(n), f"`{each.name}`", f"`{each.kind}`", each.says) for n, each in enumerate(SITUATIONS, 1)
    )
    return page([
        "# Reasons",
        (
            "`federator explain` names one reason for each site. Filters are asked first, in this order, and the first that fails is "
            "the reason. They look at one job and one place only, so they always answer. How they are used is told in "
            "[planning](../explanation/planning.md)."
        ),
        "## Filters",
        table(("order", "filter", "what it says"), filters),
        "## Situations",
        (
            "What can keep a job from a place that passes all filters: it depends on the moment and on other jobs. `kind` is that of "
            "the waiting job when this is what keeps it; a job that fails a filter everywhere is of kind `filter`."
        ),
        table(("order", "situation", "kind", "what it says"), situations),
        "## Kinds of reasons",
        (
            "Beside each sentence (`because`, `text`) the API answers `reason`: a `kind` from this closed list, and its parameters: ids, numbers, "
            "moments in seconds since the epoch. Programs go by these: a kind and the names of its parameters stay, while sentences may be worded "
            "better. Parameters may be added, and one that is left out has its default. `why`, `waits` and `beside` hold a further reason. What older versions have stored "
            "in words only has no `reason`. A recorded decision (`GET /v1/decisions/{id}`) has `reason` alone: it is answered as it was recorded, which a "
            "replay has to come to byte for byte, and `federator decisions show` makes its sentences."
        ),
        table(("kind", "parameters", "what it says"), _kinds()),
    ])  # fmt: skip


def _kinds() -> Iterator[tuple[str, str, str]]:
    """All reasons, with what they are about."""
    from federator.model import reasons

    for kind in get_args(reasons.Reason):
        parameters = ", ".join(f"`{name}`" for name in kind.__annotations__)
        yield f"`{kind.__struct_config__.tag}`", parameters, one_line(kind.__doc__ or "")


def metrics() -> str:
    """The catalogue of metrics."""
    from federator.telemetry import CATALOGUE

    rows = (
        (f"`{each.name}`", each.type, ", ".join(f"`{label}`" for label in each.labels), one_line(each.help))
        for each in CATALOGUE
    )
    return page([
        "# Metrics",
        "`GET /metrics` answers these in Prometheus' text format. A metric that is not in the catalogue cannot be recorded.",
        table(("name", "type", "labels", "what it counts"), rows),
    ])  # fmt: skip


def http_api() -> str:
    """The table of routes."""
    from federator.api.openapi import description
    from federator.api.routes import ROUTES

    rows = [
        (route.method, f"`{path}`", operation["summary"], operation["description"])
        for path, operations in description(ROUTES)["paths"].items()
        for route in ROUTES
        if route.path == path and (operation := operations[route.method.lower()])
    ]
    return page([
        "# HTTP API",
        ("Bearer tokens, JSON, and problem+json for every error. [openapi.json](openapi.json) has the bodies; a running "
        "dispatcher answers the same at `/v1/openapi.json`. [Errors](errors.md) are what can go wrong."),
        table(("method", "path", "what it does", "who may"), rows),
    ])  # fmt: skip


def openapi() -> str:
    """The OpenAPI description, so that a change of the API shows in review."""
    from federator.api.openapi import description
    from federator.api.routes import ROUTES

    return json.dumps(description(ROUTES), indent=1, default=str, sort_keys=True) + "\n"


def errors() -> str:
    """Every named situation with its code and HTTP status."""
    from federator.api.problems import STATUS
    from federator.kernel import errors as module

    rows = []
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, module.FederatorError) and kind.__subclasses__() == []:
            status = next(STATUS[each] for each in kind.__mro__ if each in STATUS)
            family = next(each.__name__ for each in kind.__mro__ if each.__base__ is module.FederatorError)
            rows.append(
                (f"`{kind.code}`", str(int(status)), family.lower(), one_line(kind.__doc__ or ""), name)
            )
    return page([
        "# Errors",
        ("An error is a named situation. The body of an answer (`application/problem+json`) has its `code`, the `field` at "
        "fault, and the `remedy`. *Permanent*: repeating it cannot help. *Transient*: try again after `retry_after_s`. "
        "*Conflict*: the state has moved; look again. *Bug*: the fault is ours."),
        table(("code", "HTTP status", "family", "what it means"), (row[:4] for row in sorted(rows))),
    ])  # fmt: skip


def exit_codes() -> str:
    """Exit codes of the command."""
    from federator.cli.exit_codes import MEANINGS

    return page([
        "# Exit codes",
        "`federator run` and `federator wait` end with the exit code of the job; every other code is one of these.",
        table(("code", "meaning"), ((str(code), one_line(says)) for code, says in MEANINGS.items())),
    ])  # fmt: skip


def command_line() -> str:
    """The `federator` command, verb by verb."""
    from federator.cli.app import build_app

    text = build_app().generate_docs(output_format="markdown", heading_level=1)
    # Run as `python -m ...`, the program's own name would stand in every line of usage.
    return page([re.sub(r"^(federator [\w -]+) -m [\w.]+", r"\1", text, flags=re.MULTILINE).strip()])


def agent_command_line() -> str:
    """The `federator-agent` command, verb by verb."""
    from federator_agent.__main__ import _parser

    parser = _parser()
    text = [
        "# federator-agent",
        "The process at a site. The [site file](site-file.md) is what `--config` names.",
    ]
    verbs = next(each.choices for each in parser._actions if isinstance(each.choices, Mapping))  # noqa: SLF001 - argparse has no public way to list its verbs
    for name, verb in verbs.items():
        options = ((f"`{', '.join(each.option_strings)}`", each.help or "") for each in verb._actions)  # noqa: SLF001 - the same
        text += [
            f"## {name}",
            f"{one_line(verb.description or '').capitalize()}.",
            table(("option", "meaning"), options),
        ]
    return page(text)


def _schema(file: File) -> Callable[[], str]:
    def write() -> str:
        return json.dumps(SCHEMAS[file](), indent=1) + "\n"

    write.__doc__ = f"JSON Schema of {file} files, as `federator schema {file}` prints it."
    return write


PAGES: dict[str, Callable[[], str]] = {
    "job-file.md": job_file,
    "site-file.md": site_file,
    "operator-file.md": operator_file,
    "policies.md": policies,
    "settings.md": settings,
    "cli.md": command_line,
    "agent-cli.md": agent_command_line,
    "http-api.md": http_api,
    "openapi.json": openapi,
    "errors.md": errors,
    "exit-codes.md": exit_codes,
    "events.md": event_docs.events,
    "metrics.md": metrics,
    "environment.md": variable_docs.environment,
    "reasons.md": reasons,
    "lifecycles.md": lifecycles,
    "solver-files.md": solver_docs.solver_files,
} | {f"{file}.schema.json": _schema(file) for file in SCHEMAS}


FILES: dict[str, Callable[[], str]] = {
    "deploy/kubernetes/federatedjobs.yaml": definition.written,
    "tests/console/api.d.ts": console_types,
}
"""What else is written from the code."""


def index() -> str:
    """The list of pages; each page's first line is its title."""
    entries = [
        f"- [{one_line(make.__doc__ or '').removesuffix('.')}]({name})" for name, make in PAGES.items()
    ]
    return page(
        ["# Reference", "Written from the code, and checked against it by `make lint`.", "\n".join(entries)]
    )


def main(arguments: list[str]) -> int:
    """Write all pages, or with `--check` name those that are out of date."""
    wanted = {FOLDER / name: make() for name, make in PAGES.items()} | {FOLDER / "README.md": index()}
    wanted |= {ROOT / name: make() for name, make in FILES.items()}
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    if "--check" in arguments:
        if stale:
            names = ", ".join(sorted(str(file.relative_to(ROOT)) for file in stale))
            print(f"{names} out of date: run 'make docs' and commit", file=sys.stderr)
        return 1 if stale else 0
    for file in stale:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(wanted[file])
        print(f"wrote {file.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
