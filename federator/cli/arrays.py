"""Arrays as one: what `show` says of all tasks together, and running again those that failed."""

from collections.abc import Mapping
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from federator.cli.output import Output, facts, say, show, show_data, status
from federator.cli.phrases import counted, duration, usd, when_exactly
from federator.cli.requested import asks_for_any
from federator.cli.session import HERE, Connection, ask
from federator.wire.http import ArrayDetail, Submitted


def show_array(array: ArrayDetail, now: float, output: Output) -> None:
    """All tasks together, and the verb for those that failed."""
    if output in ("json", "yaml"):
        show_data(array, output)
        return
    used = (
        f"{usd(array.spent_usd)}, {array.gpu_s / 3600:.2f} GPU-hours"
        if array.gpu_s or array.spent_usd
        else ""
    )
    named: list[tuple[str, str | Text]] = [
        ("array", f"{array.name}[{array.indices}]"),
        ("id", array.id),
        ("tasks", tasks_in_words(array.tasks)),
        ("at once", "" if array.at_once is None else f"at most {array.at_once}"),
        ("waits", array.waits),
        (
            "not expanded",
            f"{array.unexpanded} of those that wait: they become jobs as others start"
            if array.unexpanded
            else "",
        ),
        *(("ended", f"{array.name}[{indices}]  {why}") for why, indices in array.ended.items()),
        ("owner", f"{array.owner}, queue {array.queue}"),
        ("at", ", ".join(f"{site} ({count})" for site, count in array.sites.items())),
        ("asks for", f"{asks_for_any(array.spec)}, each"),
        ("after", ", ".join(array.after)),
        ("submitted", when_exactly(array.submitted_at, now)),
        ("started", when_exactly(array.started_at, now)),
        ("finished", when_exactly(array.finished_at, now)),
        ("expected finish", when_exactly(array.expected_finish_at, now)),
        ("deadline", when_exactly(array.deadline_at, now)),
        ("mean run", "" if array.mean_run_s is None else duration(array.mean_run_s)),
        ("spent", used),
        ("outputs", f"federator download {array.name}" if array.outputs else ""),
    ]
    show(facts(named))
    if "FAILED" in array.tasks:
        say(f"next: federator rerun {array.name} --failed")


def tasks_in_words(tasks: Mapping[str, int]) -> Text:
    """How many are in each status."""
    told = Text()
    for name, count in tasks.items():
        told.append(", " if told else "").append(f"{count} ").append_text(status(name))
    return told


def rerun(
    job: Annotated[
        str,
        Parameter(
            help="Id or name of what has ended: a job, an array, some of its tasks as in 'sweep[3-7]', or a pipeline."
        ),
    ],
    *,
    failed: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Submit again, as it was, what has ended. The former jobs stay on record; their names mean the new ones from then on.

    Parameters
    ----------
    failed:
        Only the tasks that failed; of a pipeline the steps that failed, arrays whole, and those that follow them.
    """
    submitted, _ = ask(connection, lambda client: client.rerun(job, failed=failed))
    if output in ("json", "yaml"):
        show_data(submitted, output)
        return
    print("\n".join(ids_of(submitted)))
    count = (
        counted(len(submitted.jobs), "step") if submitted.pipeline else counted(submitted.tasks or 1, "job")
    )
    say(f"{submitted.name} submitted again, {count}; next: federator show {submitted.name}")


def ids_of(submitted: Submitted) -> tuple[str, ...]:
    """What a submission is known by: the ids of its jobs, or, where those of a very large array are not all told, that of the array."""
    return submitted.jobs if len(submitted.jobs) >= submitted.tasks else (submitted.array,)
