"""What is known of a machine lies in its folder, which several processes and threads read and write at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from federator_providers.local.folder import InstanceFolder


def test_who_first_says_when_it_ended_is_right_though_many_say_so_at_once(tmp_path: Path) -> None:
    """Offers and listings are read in threads of one process, and each settles what it finds dead."""
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            folder = InstanceFolder(tmp_path / str(number))
            folder.path.mkdir()
            told = set(pool.map(folder.end, map(float, range(8))))
            assert told == {folder.ended_at()}
            assert [path.name for path in folder.path.iterdir()] == ["ended"]
