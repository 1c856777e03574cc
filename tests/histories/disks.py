"""Disks of a test's own that can stand still: a file system on a loop device, frozen and thawed as for a snapshot of it.

Whoever writes to a frozen one, or syncs it, waits in the kernel until it is thawed; who reads does not. It takes the right to mount. A guardian of each
disk thaws and unmounts it when its test is gone, however that came about.
"""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

SIZE_MIB = 2048
"""Of the file, which has holes. A dispatcher refuses work when 512 MiB are left."""
GUARD = """
mount -o loop "$0" "$1" || exit 1
echo mounted
while read -r word; do
    if [ "$word" = freeze ]; then fsfreeze -f "$1"; else fsfreeze -u "$1"; fi
    echo "$word"
done
fsfreeze -u "$1" 2>/dev/null
umount -l "$1"
"""


class Disk:
    """Mounted at `folder`, which is made. Raises `OSError` where that is not allowed here."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        image = folder.with_name(f"{folder.name}.img")
        with image.open("wb") as file:
            file.truncate(SIZE_MIB << 20)
        made = subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True, text=True, check=False)
        if made.returncode:
            raise OSError(f"no file system could be made in {image}: {made.stderr.strip()}")
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, str(image), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._guard.stdout is not None
        assert self._guard.stderr is not None
        if not self._guard.stdout.readline():
            raise OSError(f"{image} could not be mounted: {self._guard.stderr.read().strip()}")
        folder.chmod(0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def freeze(self) -> None:
        """From now on whoever writes to it waits."""
        self._say("freeze")

    def thaw(self) -> None:
        """Let them go on."""
        self._say("thaw")

    def close(self) -> None:
        """Thaw and unmount it."""
        with suppress(subprocess.TimeoutExpired):
            self._guard.communicate(timeout=20)

    def _say(self, word: str) -> None:
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        self._guard.stdin.write(word + "\n")
        self._guard.stdin.flush()
        self._guard.stdout.readline()
