"""What a pod says that it uses."""

import subprocess
from pathlib import Path

import pytest

from federator_agent.kube.usage import SCRIPT, read_look
from federator_agent.usage import GpuUse, Reading


def test_both_hierarchies_of_control_groups_are_read() -> None:
    unified = ["usage_usec 2500000", "user_usec 1", "anon 4096", "file 99999", "0, 17", "97, 4000"]
    assert read_look(unified) == Reading(2.5, 4096, (GpuUse(0.0, 17), GpuUse(97.0, 4000)))
    old = ["2500000000", "cache 9", "rss 5", "total_rss 4096"]
    assert read_look(old) == Reading(2.5, 4096, None)


def test_a_gpu_of_which_the_driver_does_not_say_how_busy_it_is_is_not_idle() -> None:
    assert read_look(["usage_usec 1000000", "anon 1", "[N/A], 17", "0, 3"]) == Reading(1.0, 1, None)


STAND_IN = """#!/bin/sh
[ "$*" = "--query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits" ] || exit 2
cat <<'END'
{printed}
END
"""


@pytest.mark.parametrize(
    ("printed", "gpus"),
    [
        ("98, 40536\n0, 4", (GpuUse(98.0, 40536), GpuUse(0.0, 4))),
        ("[N/A], 13312", None),  # a GPU that is cut by MIG
        ("98, [N/A]", None),  # one that shares the host's memory
        ("No devices were found", None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
    ],
)
def test_a_pod_says_what_nvidia_smi_prints(
    tmp_path: Path, printed: str, gpus: tuple[GpuUse, ...] | None
) -> None:
    """The script as a pod runs it, with this host's control groups."""
    (tmp_path / "nvidia-smi").write_text(STAND_IN.format(printed=printed))
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = subprocess.run(["/bin/sh", "-c", SCRIPT], env=path, capture_output=True, text=True, check=False)
    found = read_look(["usage_usec 1", *said.stdout.splitlines()])
    assert found is not None
    assert found.gpus == gpus


@pytest.mark.parametrize("lines", [[], ["sh: not found"], ["usage_usec -1"], ["anon 5"], ["9" * 30]])
def test_what_says_no_time_says_nothing(lines: list[str]) -> None:
    assert read_look(lines) is None
