"""Kills for want of memory, as the kernel counts them."""

from pathlib import Path

import pytest

from federator_agent.local.memory import KillCount


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("cgroup", "file", "text"),
    [
        ("0::/fed\n", "sys/fs/cgroup/fed/memory.events", "low 0\noom 7\noom_kill {}\noom_group_kill 0\n"),
        ("0::/\n", "sys/fs/cgroup/memory.events", "oom_kill {}\n"),
        (
            "5:cpu:/\n4:memory:/fed\n",
            "sys/fs/cgroup/memory/fed/memory.oom_control",
            "under_oom 0\noom_kill {}\n",
        ),
        ("", "proc/vmstat", "pgfault 12\noom_kill {}\n"),
    ],
)
def test_only_a_kill_since_the_look_before_the_last_counts(
    tmp_path: Path, cgroup: str, file: str, text: str
) -> None:
    write(tmp_path, "proc/self/cgroup", cgroup)
    write(tmp_path, file, text.format(3))
    kills = KillCount(tmp_path)
    assert not kills.rose()
    write(tmp_path, file, text.format(4))
    assert kills.rose()
    kills.look()
    assert kills.rose(), "the kill may have been just before the look"
    kills.look()
    assert not kills.rose()


def test_a_kernel_that_says_nothing_accuses_nobody(tmp_path: Path) -> None:
    assert not KillCount(tmp_path).rose()


def test_the_cgroup_counts_and_not_the_host(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/fed\n")
    write(tmp_path, "sys/fs/cgroup/fed/memory.events", "oom_kill 0\n")
    write(tmp_path, "proc/vmstat", "oom_kill 1\n")
    kills = KillCount(tmp_path)
    write(tmp_path, "proc/vmstat", "oom_kill 2\n")
    assert not kills.rose()
