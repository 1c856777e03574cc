"""How much the operator looks after at once: `most` of its file, over objects and Workloads alike, and to each namespace its equal share of that whatever others have."""

from collections.abc import Iterable


class Claims:
    """What is looked after, by mapped namespace."""

    def __init__(self, most: int, namespaces: Iterable[str]) -> None:
        self._most = most
        self.objects: dict[str, set[str]] = {name: set() for name in namespaces}
        """Keys of `FederatedJob` objects."""
        self.workloads: dict[str, set[str]] = {name: set() for name in self.objects}
        """Client ids of the jobs that stand for Workloads."""

    def full(self, namespace: str) -> bool:
        """Whether one more would be too many: of all, unless the namespace has not had its share."""
        counts = {name: len(keys) + len(self.workloads[name]) for name, keys in self.objects.items()}
        return sum(counts.values()) >= self._most and counts[namespace] >= self._most / len(counts)
