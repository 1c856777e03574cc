"""Which device nodes of this host's GPUs a job is not to have.

NVIDIA's driver says for each GPU, in a folder named by its place on the PCI bus, which number its node has. The GPUs count in the order of
that bus, as the agent counts them. Nodes that belong to no GPU alone stay.
"""

import re
from collections.abc import Collection
from pathlib import Path

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
    """The nodes of all GPUs of this host but those with these numbers."""
    nodes = (root / f"dev/nvidia{node}" for gpu, node in enumerate(numbers(root)) if gpu not in gpus)
    return tuple(node for node in nodes if node.exists())
