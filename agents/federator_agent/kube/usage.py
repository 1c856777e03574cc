"""What pods use, as each sees it of itself: its control group, and `nvidia-smi` where the driver's container toolkit has put it there.

A command in the pod's own container, as `federator exec` runs one, so nothing has to be installed and no right is needed beyond that. The metrics
API knows no GPUs and is not in every cluster; the kubelet's summary wants a right that lets its holder run commands in every pod of the node.
"""

import asyncio
import re

from federator.kernel.errors import FederatorError
from federator.kube.api import Api
from federator_agent.kube import commands
from federator_agent.kube.manifests import MAIN
from federator_agent.usage import GpuUse, Reading

LIMIT_S = 10.0
"""Real seconds that one look may take: a job may hang."""
MOST_LINES = 300
_GROUP = "/sys/fs/cgroup"
SCRIPT = f"""for f in cpu.stat memory.stat cpuacct/cpuacct.usage memory/memory.stat; do
[ ! -r {_GROUP}/$f ] || while read -r line; do echo "$line"; done <{_GROUP}/$f
done
! command -v nvidia-smi >/dev/null 2>&1 || nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits
"""
_GPU = re.compile(r"(\d{1,3}|\S{1,20}), (\d{1,9})")
_COUNT = re.compile(r"(?:([a-z_]{1,40}) )?(\d{1,19})")


async def look(api: Api, pod_path: str) -> Reading | None:
    """What the pod's job uses now; None where it cannot be known."""
    lines: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_S), commands.in_container(api, pod_path, MAIN, SCRIPT) as command:
            async for line in command.lines():
                lines.append(line.strip())
                if len(lines) > MOST_LINES:
                    return None
    except (FederatorError, TimeoutError):
        return None
    return read_look(lines)


def read_look(lines: list[str]) -> Reading | None:
    """What the script has said. A job may have a shell of its own, so anything may come."""
    counts = {match[1] or "": int(match[2]) for line in lines if (match := _COUNT.fullmatch(line))}
    if "usage_usec" in counts:
        cpu_s = counts["usage_usec"] / 1e6
    elif "" in counts:
        cpu_s = counts[""] / 1e9
    else:
        return None
    found = [match for line in lines if (match := _GPU.fullmatch(line))]
    gpus = tuple(GpuUse(min(100.0, float(each[1])), int(each[2])) for each in found if each[1].isdigit())
    known = found and len(gpus) == len(found)
    memory = counts.get("anon", counts.get("total_rss", counts.get("rss", 0)))
    return Reading(cpu_s, memory, gpus if known else None)
