"""What a job asks for, as reasons have it."""

from federator.model.jobs import in_gpus
from federator.model.reasons import Asked, FormTaken
from federator.model.snapshot import JobView


def asked(job: JobView) -> Asked:
    """Its nodes, and what is on each."""
    count = float(in_gpus(job.gpus, shared=job.shared))
    return Asked(job.nodes, count, job.models, job.cpus_milli, job.memory_mib)


def form_taken(job: JobView, form: int) -> FormTaken:
    """Which of the job's forms it is, by its number."""
    mine = [(0, job.nodes, in_gpus(job.gpus, shared=job.shared))]
    mine += [(each.option, each.nodes, each.resources.gpus.total) for each in job.forms]
    option, nodes, count = mine[form]
    widths = [each for each in mine if each[0] == option]
    return FormTaken(
        entry=option + 1,
        entries=len({entry for entry, _, _ in mine}),
        nodes=nodes,
        nodes_low=min(each[1] for each in widths),
        nodes_high=max(each[1] for each in widths),
        gpus=float(count),
        gpus_low=float(min(each[2] for each in widths)),
        gpus_high=float(max(each[2] for each in widths)),
    )
