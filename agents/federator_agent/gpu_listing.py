"""GPUs of a host of which no NVIDIA driver tells: a command of the site's own prints them, `list_gpus` of its file.

A command rather than a class that is loaded: it may be a line of shell or whatever the board's maker gives, and it cannot harm the agent.
"""

import subprocess

from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_size_bytes
from federator_agent.nvml import Make

WITHIN_S = 10.0
MOST_BYTES = 2**16
ENDED = 124
"""What `timeout` ends with when it has ended the command."""
FIELD = "$.list_gpus"


def listed(command: str) -> tuple[Make, ...]:
    """What the command prints: a line for each GPU, its model and its memory. What is printed beyond `MOST_BYTES` fails the command. Raises `Invalid`."""
    words = ["timeout", "--kill-after=1", f"{WITHIN_S:g}", "/bin/sh", "-c", command]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as ran:
        assert ran.stdout is not None
        said = ran.stdout.read(MOST_BYTES)
    if ran.returncode:
        over = ran.returncode == ENDED
        how = f"was ended after {WITHIN_S:g} s" if over else f"ended with exit code {ran.returncode}"
        raise Invalid(f"the command {how}", field=FIELD, remedy="run it by hand, as the agent's user")
    memory_mib: dict[str, list[int]] = {}
    for line in said.decode(errors="replace").splitlines():
        model, _, memory = line.strip().rpartition(" ")
        try:
            memory_mib.setdefault(model.strip(), []).append(parse_size_bytes(memory) >> 20)
        except ValueError:
            model = ""
        if not model:
            what = f"the command printed {line[:80]!r}"
            raise Invalid(what, field=FIELD, remedy="print a line for each GPU, such as 'Orin 32GB'")
    return tuple(Make(model, min(each), len(each)) for model, each in memory_mib.items())
