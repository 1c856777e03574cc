"""How wide a job of several forms may run, in words: `1-8 nodes`, `1-8 GPUs`."""

from federator.model.jobs import JobSpec, tidy


def widths(spec: JobSpec) -> str:
    """From its narrowest to its widest form: in nodes where all of them have as many GPUs, else in GPUs; empty where it has one form only."""
    forms = [spec.as_form(form) for form in range(1 + len(spec.forms or ()))]
    each = {form.resources.gpus.total for form in forms}
    counts = sorted({_count(form, by_nodes=len(each) == 1) for form in forms})
    if len(counts) < 2:
        return ""
    return f"{counts[0]:g}-{counts[-1]:g} {'nodes' if len(each) == 1 else 'GPUs'}"


def width_of(spec: JobSpec, form: int) -> str:
    """How wide it runs, of how wide it may: `2 of 1-8 nodes`."""
    span = widths(spec)
    by_nodes = span.endswith("nodes")
    return f"{tidy(_count(spec.as_form(form), by_nodes=by_nodes)):g} of {span}" if span else ""


def _count(spec: JobSpec, *, by_nodes: bool) -> float:
    return spec.nodes if by_nodes else spec.gpus_total
