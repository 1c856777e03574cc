"""Which device nodes of this host's GPUs a job is not to have.

NVIDIA's driver says for each GPU, in a folder named by its place on the PCI bus, which number its node has. The GPUs count in the order of
that bus, as the agent counts them. A MIG instance has nodes that open it, beside that of its GPU. Nodes that belong to no GPU alone stay.
"""

import re
from collections.abc import Collection
from pathlib import Path

from federator_agent.mig import number_of, place_of

_CAPABILITY = re.compile(r"^DeviceFileMinor:\s*(\d+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)


def numbers(root: Path = Path("/")) -> list[int]:
    """The numbers of the nodes of this host's GPUs, in the GPUs' order; empty: the driver says nothing."""
    found = []
    try:
        for folder in sorted((root / "proc/driver/nvidia/gpus").iterdir()):
            match = _MINOR.search((folder / "information").read_text())
            if match is None:
                return []
            found.append(int(match[1]))
    except OSError:
        return []
    return found


def others(gpus: Collection[int], root: Path = Path("/")) -> tuple[Path, ...]:
    """The nodes of all GPUs of this host but those with these numbers, or with instances of these numbers; and of all other instances."""
    whole = {place_of(gpu)[0] for gpu in gpus}
    nodes = []
    for gpu, node in enumerate(numbers(root)):
        if gpu not in whole:
            nodes.append(root / f"dev/nvidia{node}")
        for instance in (root / f"proc/driver/nvidia/capabilities/gpu{node}/mig").glob("gi[0-9]*"):
            if number_of(gpu, int(instance.name[2:])) not in gpus:
                nodes += (_capability(file, root) for file in instance.rglob("access"))
    return tuple(node for node in nodes if node.exists())


def _capability(access: Path, root: Path) -> Path:
    """The node that opens what the driver describes in that file."""
    match = _CAPABILITY.search(access.read_text())
    return root / "dev/nvidia-caps" / (f"nvidia-cap{match[1]}" if match else "none")
