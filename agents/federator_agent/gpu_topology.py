"""Which GPUs of a host reach each other best: by NVLink, and by their NUMA node. As the driver says; what it does not say is not known."""

from collections.abc import Callable, Hashable, Mapping
from itertools import combinations
from typing import Any

Groups = tuple[tuple[int, ...], ...]
"""Numbers of GPUs, each in one group at most."""
Ask = Callable[..., Any]
"""Calls the driver's library; None where it has no answer."""


def near(nvml: Any, devices: Mapping[int, Any], ask: Ask) -> tuple[Groups, Groups]:
    """The islands of GPUs that NVLink joins, directly or through switches; and the GPUs of each NUMA node."""
    return _islands(nvml, devices, ask), _nodes(nvml, devices, ask)


def _islands(nvml: Any, devices: Mapping[int, Any], ask: Ask) -> Groups:
    joined = _Joined()
    for number, device in devices.items():
        own = ask(nvml.nvmlDeviceGetPciInfo, device)
        if own is not None:
            joined.join(number, own.busId)
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            if ask(nvml.nvmlDeviceGetNvLinkState, device, link) == nvml.NVML_FEATURE_ENABLED:
                other = ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, device, link)
                if other is not None:
                    joined.join(number, other.busId)  # of another GPU, or of a switch that others have, too
    return joined.groups(devices)


def _nodes(nvml: Any, devices: Mapping[int, Any], ask: Ask) -> Groups:
    joined = _Joined()
    for (one, first), (other, second) in combinations(devices.items(), 2):
        level = ask(nvml.nvmlDeviceGetTopologyCommonAncestor, first, second)
        if level is not None and level <= nvml.NVML_TOPOLOGY_NODE:
            joined.join(one, other)
    return joined.groups(devices)


class _Joined:
    """Things that are joined, whatever joins them."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def join(self, one: Hashable, other: Hashable) -> None:
        """From now on they are in one group."""
        self._above[self._top(one)] = self._top(other)

    def groups(self, numbers: Mapping[int, Any]) -> Groups:
        """Those of several."""
        found: dict[Hashable, list[int]] = {}
        for number in sorted(numbers):
            found.setdefault(self._top(number), []).append(number)
        return tuple(tuple(group) for group in found.values() if len(group) > 1)

    def _top(self, one: Hashable) -> Hashable:
        while (above := self._above.get(one, one)) != one:
            one = above
        return one
