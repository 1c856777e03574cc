"""What a job asks for, in words: here and not with the verbs, for a job of several forms has one line for each entry of its list."""

from federator.cli.phrases import gpus
from federator.kernel.quantities import format_mib
from federator.model.jobs import JobSpec


def asks_for_any(spec: JobSpec) -> str:
    """What it asks for in each entry of its list; of a range of GPUs, all of them."""
    forms = [spec.as_form(form) for form in range(1 + len(spec.forms or ()))]
    options = [0, *(form.option for form in spec.forms or ())]
    entries = []
    for option in sorted(set(options)):
        mine = [form for form, entry in zip(forms, options, strict=True) if entry == option]
        counts = [form.resources.gpus.total for form in mine]
        text = asks_for(mine[0])
        if min(counts) < max(counts):
            text = f"{min(counts):g}-{max(counts):g} GPUs per node; at least {text}"
        entries.append(text)
    return ", or ".join(dict.fromkeys(entries))


def asks_for(spec: JobSpec) -> str:
    """What it asks for in one form: GPUs, CPUs and memory, per node where it has several."""
    wanted = spec.resources
    count = gpus(spec.nodes, wanted.gpus.total, "|".join(wanted.gpus.models))
    parts = [_counted(count, "GPU") if wanted.gpus.count else f"{spec.nodes} nodes" if spec.nodes > 1 else ""]
    parts.append(_counted(f"{wanted.cpus_milli / 1000:g}", "CPU"))
    parts.append(f"{format_mib(wanted.memory_mib)} memory" if wanted.memory_mib else "")
    return ", ".join(part for part in parts if part) + (" per node" if spec.nodes > 1 else "")


def _counted(count: str, what: str) -> str:
    return f"{count} {what}" if count.split(" ", maxsplit=1)[0] == "1" else f"{count} {what}s"
