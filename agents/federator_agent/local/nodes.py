"""Which device nodes of this host's GPUs a job is to have, and which not.

NVIDIA's driver says for each GPU, in a folder named by its place on the PCI bus, which number its node has. The GPUs count in the order of
that bus, as the agent counts them. A MIG instance has nodes that open it, beside that of its GPU. Nodes that belong to no GPU alone stay.
"""

import re
from collections.abc import Collection
from pathlib import Path

from federator_agent.mig import place_of

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
    """The nodes of all GPUs of this host but those with these numbers, or with instances of these numbers."""
    whole = {place_of(gpu)[0] for gpu in gpus}
    nodes = (root / f"dev/nvidia{node}" for gpu, node in enumerate(numbers(root)) if gpu not in whole)
    return tuple(node for node in nodes if node.exists())


def of_instances(root: Path = Path("/")) -> Path | None:
    """The folder of the nodes that open instances; None: there is none, or the driver does not say which is whose."""
    folder = root / "dev/nvidia-caps"
    return folder if numbers(root) and folder.is_dir() else None


def openers(gpus: Collection[int], root: Path = Path("/")) -> tuple[Path, ...]:
    """The nodes that open the instances of these numbers, beside those of their GPUs."""
    minors = numbers(root)
    nodes = []
    for number in gpus:
        gpu, instance = place_of(number)
        if instance is None or gpu >= len(minors):
            continue
        folder = root / f"proc/driver/nvidia/capabilities/gpu{minors[gpu]}/mig/gi{instance}"
        matches = (_CAPABILITY.search(access.read_text()) for access in folder.rglob("access"))
        nodes += [root / f"dev/nvidia-caps/nvidia-cap{match[1]}" for match in matches if match]
    return tuple(nodes)
