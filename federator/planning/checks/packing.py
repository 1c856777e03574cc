"""Whether ranks fit hosts: whole numbers of GPUs, milli-cores and MiB, host by host.

Totals lie about fragmentation, so this works on the histogram of free hosts. Ranks may share a host. Best fit in the order of the actions
settles almost every case; when it fails, everything placed on the pool so far is packed again, largest first, and at last searched for
exactly within a bounded number of steps. What the search cannot settle counts as not fitting: a checker errs on the safe side.
"""

from collections import Counter
from collections.abc import Iterable

from federator.model.capacity import Shape
from federator.model.snapshot import BusyView, JobView

SEARCH_STEPS = 2_000
Size = tuple[int, int, int]
"""GPUs, milli-cores, MiB: of a host's free part, or of a rank."""
Left = tuple[int, int, int, tuple[str, ...]]
"""What is left of a host, and the gangs that have a rank there and want no second one."""
Rank = tuple[int, int, int, str]
"""A rank's size, and the gang whose ranks are each on a host of their own; empty: they need not be."""
Mark = tuple[Counter[Left], tuple[Rank, ...]]


def rank_of(who: JobView | BusyView) -> Size:
    """What one of its ranks takes."""
    return who.gpus, who.cpus_milli, who.memory_mib


class Hosts:
    """The free hosts of one pool, and the ranks that earlier actions have put there."""

    def __init__(self, free: Iterable[Shape]) -> None:
        self._original: Counter[Left] = Counter()
        for shape in free:
            self._original[shape.gpus, shape.cpus_milli, shape.memory_mib, ()] += shape.count
        self._left = +self._original
        self._ranks: list[Rank] = []

    def take(self, size: Size, count: int, apart: str = "") -> bool:
        """Put `count` more ranks there beside all earlier ones; False, and nothing changes, when no packing is found. `apart`: the gang, if each is to be on a host of its own."""
        rank = (*size, apart)
        wanted = [rank] * count
        left = _best_fit(self._left, wanted)
        if left is None and any(earlier != rank for earlier in self._ranks):
            left = self._repacked(sorted([*self._ranks, *wanted], reverse=True))
        if left is None:
            return False
        self._left = left
        self._ranks += wanted
        return True

    def _repacked(self, ranks: list[Rank]) -> Counter[Left] | None:
        """Hosts after packing all these ranks anew; ranks of one size never need it, since best fit is exact for them."""
        for part in range(3):
            has = sum(size[:3][part] * count for size, count in self._original.items())
            if has < sum(rank[:3][part] for rank in ranks):
                return None
        return _best_fit(self._original, ranks) or _search(self._original, ranks)

    @property
    def free(self) -> Size:
        """What is left on all hosts together."""
        left = self._left.items()
        return (
            sum(host[0] * count for host, count in left),
            sum(host[1] * count for host, count in left),
            sum(host[2] * count for host, count in left),
        )

    def mark(self) -> Mark:
        """As it is now, to go back to."""
        return self._left, tuple(self._ranks)

    def back_to(self, mark: Mark) -> None:
        """Undo what was taken since."""
        self._left, self._ranks = mark[0], list(mark[1])

    def more(self, rank: Size, most: int, *, apart: bool = False) -> int:
        """How many more ranks fit as things lie, without moving any; counted up to `most`. `apart`: one on each host."""
        total = 0
        for left, count in self._left.items():
            fits = (has // want for has, want in zip(left[:3], rank, strict=True) if want)
            each = min(fits, default=most)
            total += (min(each, 1) if apart else each) * count
        return min(most, total)


def _holds(host: Left, rank: Rank) -> bool:
    fits = host[0] >= rank[0] and host[1] >= rank[1] and host[2] >= rank[2]
    return fits and rank[3] not in host[3]


def _less(host: Left, rank: Rank) -> Left:
    gangs = tuple(sorted((*host[3], rank[3]))) if rank[3] else host[3]
    return host[0] - rank[0], host[1] - rank[1], host[2] - rank[2], gangs


def _move(left: Counter[Left], host: Left, rank: Rank) -> None:
    left[host] -= 1
    if not left[host]:
        del left[host]
    left[_less(host, rank)] += 1


def _best_fit(hosts: Counter[Left], ranks: list[Rank]) -> Counter[Left] | None:
    """Each rank on the fullest host that still holds it; what is left (never empty: full hosts stay, with nothing free), or None."""
    left = Counter(hosts)
    for rank in ranks:
        host = min((size for size in left if _holds(size, rank)), default=None)
        if host is None:
            return None
        _move(left, host, rank)
    return left


def _search(hosts: Counter[Left], ranks: list[Rank]) -> Counter[Left] | None:
    """Any packing at all, depth first over hosts that differ; None when there is none, or none within the steps allowed."""
    steps = SEARCH_STEPS
    dead: set[tuple[int, frozenset[tuple[Left, int]]]] = set()
    stack = [(0, Counter(hosts))]
    while stack and steps:
        steps -= 1
        index, left = stack.pop()
        if index == len(ranks):
            return left
        state = index, frozenset(left.items())
        if state in dead:
            continue
        dead.add(state)
        for host in sorted(left, reverse=True):  # the fullest is pushed last and so tried first
            if _holds(host, ranks[index]):
                after = Counter(left)
                _move(after, host, ranks[index])
                stack.append((index + 1, after))
    return None
