"""Batch scripts of Slurm: their `#SBATCH` lines as a job file, and a note for each that has no place in one.

What cannot be carried over is said and left out, because a script that is refused for its mail address helps nobody.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path

from federator.cli.sbatch_values import (
    after_of,
    deadline_of,
    gpus_of,
    licenses_of,
    memory_mib_of,
    seconds_of,
    whole,
)
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_duration
from federator.wire.yamltext import Document

SHELLS = ("sh", "bash", "zsh", "ksh", "dash")
LAUNCHERS = frozenset({"srun", "mpirun"})
MOST_LINES = 10_000
OPTIONS = "#SBATCH"
"""What a line with options begins with."""
OF_OTHERS = ("#BSUB", "#PBS", "#COBALT", "#$")
"""What such lines begin with in scripts of other schedulers (LSF, PBS, Cobalt, Grid Engine)."""
SAME_AS = {
    "SLURM_ARRAY_TASK_ID": "FEDERATOR_ARRAY_INDEX",
    "SLURM_JOB_ID": "FEDERATOR_JOB_ID",
    "SLURM_JOBID": "FEDERATOR_JOB_ID",
    "SLURM_JOB_NAME": "FEDERATOR_JOB_NAME",
    "SLURM_JOB_NUM_NODES": "FEDERATOR_NUM_NODES",
    "SLURM_NNODES": "FEDERATOR_NUM_NODES",
    "SLURM_NODEID": "FEDERATOR_NODE_RANK",
    "SLURM_PROCID": "FEDERATOR_NODE_RANK",
    "SLURM_GPUS_ON_NODE": "FEDERATOR_GPUS_PER_NODE",
    "SLURM_SUBMIT_DIR": "PWD",
}
"""Variables that scripts read, and what a job has instead. A script is given those that it names."""
SHORT = {
    "J": "job-name", "a": "array", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "t": "time", "p": "partition",
    "A": "account", "q": "qos", "d": "dependency", "o": "output", "e": "error", "D": "chdir", "C": "constraint", "w": "nodelist",
    "x": "exclude", "H": "hold", "b": "begin", "L": "licenses", "s": "oversubscribe", "i": "input", "k": "no-kill", "W": "wait",
}  # fmt: skip
FLAGS = (
    "exclusive",
    "hold",
    "requeue",
    "no-requeue",
    "oversubscribe",
    "no-kill",
    "wait",
    "parsable",
    "overcommit",
    "contiguous",
)
"""Options of sbatch that stand without a value, or may."""
WITHOUT_LOSS = ("requeue", "parsable", "wait", "no-kill")
LEFT_OUT = {
    "partition": "queues here are named by --queue; where it runs is planned",
    "account": "queues here are named by --queue",
    "qos": "queues here are named by --queue",
    "output": "what it writes is kept: federator logs",
    "error": "what it writes is kept: federator logs",
    "constraint": "name a GPU model, as in --gpus A100:2, or placement.labels in a job file",
    "nodelist": "hosts are chosen by the site",
    "exclude": "hosts are chosen by the site",
    "exclusive": "hosts are shared; ask for all GPUs of one",
    "begin": "submit it then, or with 'every' in a job file",
    "hold": "federator hold it after it is submitted",
    "no-requeue": "work that is lost with a machine starts again",
    "mail-user": "the dispatcher knows where you are reached",
    "priority": "write --priority 0 to 100",
    "nice": "write --priority 0 to 100",
    "export": "your environment does not go along; name variables, as in --env NAME=VALUE",
}  # fmt: skip
"""Why, and what to do instead, of options that have no place in a job file."""


@dataclass
class _Job:
    """The job file while it is made. `asked` holds what only together says how large it is."""

    document: dict[str, object] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    line: int = 1

    def put(self, name: str, value: object) -> None:
        """A field of the job file, and where it comes from."""
        self.document[name] = value
        self.lines[f"$.{name}"] = self.line or 1

    def note(self, text: str) -> None:
        """Something that is not carried over."""
        self.notes.append(f"line {self.line}: {text}")


def read_script(path: Path, text: str) -> tuple[Document, list[str]]:
    """The job file that a script comes to, and what of it is left out. Raises `Invalid` with the line of a value that cannot be read."""
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise Invalid(f"has {len(lines)} lines", field="$", remedy=f"write at most {MOST_LINES}")
    job, begun, kept = _Job(), False, list[str]()
    for number, line in enumerate(lines, 1):
        job.line = number
        words = line.split(maxsplit=1)
        if words and words[0] == OPTIONS:
            if begun:
                job.note(f"{OPTIONS} after the first command counts for nothing")
            elif len(words) > 1:
                _mended(job, partial(_sbatch, job, words[1]))
        elif words and words[0] in OF_OTHERS and not begun:
            job.note(f"{words[0]} is of another scheduler and counts for nothing: write {OPTIONS}")
            kept.append(line)
        elif number > 1 or not line.startswith("#!"):
            kept.append(line)
        begun = begun or bool(words and not words[0].startswith("#"))
    job.line = 0
    _mended(job, lambda: _size(job))
    _mended(job, lambda: _body(job, lines[0] if lines else "", "\n".join(kept).strip("\n") + "\n"))
    if "name" not in job.document:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-")
        job.document["name"] = name[:63] or "job"
    if "workdir" not in job.document and (named := _file_beside(path, text)):
        job.document["workdir"] = "."
        job.notes.append(f"the script's folder goes along, because the script names {named}")
    return Document(_in_order(job.document), {"$": 1, **job.lines}), job.notes


def _words(rest: str) -> list[str]:
    """As a shell would split them, up to a comment. A `#` within a word is part of it."""
    return list(takewhile(lambda word: not word.startswith("#"), shlex.split(rest)))


def _mended(job: _Job, read: Callable[[], None]) -> None:
    """What cannot be read is told with its line."""
    try:
        read()
    except ValueError as error:
        where = f"line {job.line}: " if job.line else ""
        raise Invalid(f"{where}{error}", field="$", remedy="correct the line, or remove it") from None


def _sbatch(job: _Job, rest: str) -> None:
    words = _words(rest)
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and len(word) > 1:
            name, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            equals = value
        else:
            job.note(f"{word!r} is not an option")
            continue
        if not equals and name not in FLAGS:
            value = words.pop(0) if words else ""
        _option(job, name, value)


def _option(job: _Job, name: str, value: str) -> None:
    put = SBATCH.get(name)
    if put is not None:
        put(job, value)
    elif name in SIZES:
        job.asked[name] = value
    elif name not in WITHOUT_LOSS:
        why = LEFT_OUT.get(name)
        job.note(f"--{name} is left out" + (f": {why}" if why else ""))


def _name(job: _Job, value: str) -> None:
    job.put("name", re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("._-")[:63] or "job")


def _after(job: _Job, value: str) -> None:
    after, left = after_of(value)
    if after:
        job.put("after", after)
    for each in left:
        job.note(f"--dependency {each} is left out: after is one of ok, failed, any and each")


def _signal(job: _Job, value: str) -> None:
    name, _, before_s = value.rpartition(":")[2].partition("@")
    job.put("checkpoint", {"signal": name.removeprefix("SIG"), "grace": f"{before_s or 60}s"})


def _export(job: _Job, value: str) -> None:
    words = value.split(",")
    env = dict(word.split("=", 1) for word in words if "=" in word)
    if env:
        job.put("env", env)
    if left := [word for word in words if "=" not in word and word not in ("NONE", "NIL")]:
        job.note(f"--export={','.join(left)} is left out: {LEFT_OUT['export']}")


def _image(job: _Job, value: str) -> None:
    job.put("image", value.removeprefix("docker://").replace("#", "/"))


MAIL = {
    "BEGIN": ["start"],
    "END": ["end"],
    "FAIL": ["fail"],
    "ALL": ["start", "end", "fail"],
    "NONE": [],
    "ARRAY_TASKS": [],
}


def _mail(job: _Job, value: str) -> None:
    """What it asks to be mailed of, as far as people are told of that here."""
    words = [word.strip().upper() for word in value.split(",")]
    if told := list(dict.fromkeys(each for word in words for each in MAIL.get(word, ()))):
        job.put("notify", told)
    if left := [word for word in words if word not in MAIL]:
        job.note(f"--mail-type={','.join(left)} is left out: write notify in a job file")


SBATCH: Mapping[str, Callable[[_Job, str], None]] = {
    "job-name": _name,
    "array": lambda job, value: job.put("array", value),
    "time": lambda job, value: job.put("max_duration", format_duration(seconds_of(value))),
    "chdir": lambda job, value: job.put("workdir", value),
    "dependency": _after,
    "deadline": lambda job, value: job.put("deadline", deadline_of(value)),
    "signal": _signal,
    "export": _export,
    "container-image": _image,
    "mail-type": _mail,
    "licenses": lambda job, value: job.put("licenses", licenses_of(value)),
}
SIZES = (
    "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gres", "gpus", "gpus-per-node", "gpus-per-task", "mem", "mem-per-cpu",
    "mem-per-gpu", "cpus-per-gpu",
)  # fmt: skip
"""They are read together, because a node's share follows from several."""


def _size(job: _Job) -> None:
    """Nodes, and what each of them has."""
    asked = job.asked
    each = whole(asked.get("ntasks-per-node", "1"), "--ntasks-per-node")
    low, _, high = asked.get("nodes", "").partition("-")
    spread = (
        -(-whole(asked.get("ntasks", "1"), "--ntasks") // max(1, each)) if "ntasks-per-node" in asked else 1
    )
    nodes = max(1, whole(low, "--nodes") if low else spread)
    if "ntasks" in asked and "ntasks-per-node" not in asked:
        each = -(-whole(asked["ntasks"], "--ntasks") // nodes)
    if each > 1:
        job.notes.append(
            f"the script is started once per node, not {each} times: start the rest in it, as with torchrun"
        )
    if nodes > 1:
        job.put("nodes", nodes)
        job.notes.append("the script is started on every node, not on the first alone")
    if high and high != low:
        job.put("min_nodes", whole(low, "--nodes"))
        job.put("max_nodes", whole(high, "--nodes"))
        job.document["nodes"] = whole(high, "--nodes")
    resources: dict[str, object] = {}
    gpus = gpus_of(asked, nodes, each)
    if gpus is not None:
        resources["gpus"] = f"{gpus.model}:{gpus.number}" if gpus.model else gpus.number
    per_gpu = (
        whole(asked["cpus-per-gpu"], "--cpus-per-gpu") * (gpus.number if gpus else 0)
        if "cpus-per-gpu" in asked
        else 0
    )
    cpus = whole(asked.get("cpus-per-task", "1"), "--cpus-per-task") * each
    if per_gpu or "cpus-per-task" in asked or each > 1:
        resources["cpus"] = per_gpu or cpus
    memory_mib = memory_mib_of(asked, max(per_gpu, cpus), gpus.number if gpus else 0)
    if memory_mib:
        resources["memory"] = f"{memory_mib // 1024}GiB" if memory_mib % 1024 == 0 else f"{memory_mib}MiB"
    if resources:
        job.put("resources", resources)


def _body(job: _Job, first: str, text: str) -> None:
    """What runs: all but the lines that are read here, by the script's own shell, after the variables that it reads."""
    words = shlex.split(first.removeprefix("#!")) if first.startswith("#!") else ["/bin/sh"]
    if Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    shell = Path(words[0]).name if words else "sh"
    if shell not in SHELLS:
        job.put("command", [shell, *words[1:], "-c", text])
        return
    named = set(re.findall(r"\w+", text))
    wanted = [name for name in SAME_AS if name in named]
    prelude = "".join(f'export {name}="${SAME_AS[name]}"\n' for name in wanted)
    commands = {line.split(maxsplit=1)[0] for line in text.splitlines() if line.strip()}
    if commands & LAUNCHERS:
        job.notes.append(
            "the script starts its work with srun or its like, which a site may lack, or which may find no allocation: write the command itself"
        )
    if commands & {"module", "ml"}:
        job.notes.append(
            "the script loads modules, which not every site has: name an image, or set up in the script"
        )
    if shell == "sh" and len(words) == 1:
        job.put("run", prelude + text)
    else:
        job.put("command", [shell, *words[1:], "-c", prelude + text])


def _file_beside(path: Path, text: str) -> str:
    """A file beside the script that the script names."""
    folder = path.parent
    names = (name for name in dict.fromkeys(re.findall(r"[\w./-]+", text)) if not name.startswith("/"))
    return next(
        (name for name in names if ".." not in name and name != path.name and (folder / name).is_file()), ""
    )


def _in_order(document: dict[str, object]) -> dict[str, object]:
    """What runs comes last: it is long."""
    return {
        key: document[key]
        for key in sorted(document, key=lambda key: (key in ("run", "command"), key != "name"))
    }
