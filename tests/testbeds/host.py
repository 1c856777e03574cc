"""A host of its own on this machine: systemd in namespaces, on the programs of this machine, which it cannot write to.

It has `/etc`, `/opt`, `/var/lib` and the like of its own, and shares the network. So what changes a host can be tried for real and leaves nothing behind.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.waiting import PATIENCE_S, wait_until

GIVEN = Path("/mnt/given")
"""What the test's folder is called there."""
PACKAGES = Path("/mnt/packages")
"""The packages of the tests' own environment."""
PYTHON = Path(sys.executable).resolve()
"""The interpreter of the tests."""
OWN = "etc home mnt opt root run tmp usr/local/bin var/lib var/log var/tmp"
HIERARCHY = Path("/sys/fs/cgroup/systemd")
"""Of control groups, on machines with the older version of them."""
BOOT = """set -e
groups=$1
if [ -n "$groups" ]; then mkdir "$groups" && echo $$ >"$groups/cgroup.procs"; fi
exec unshare --mount --pid --uts --ipc --cgroup --fork --kill-child sh -c '
set -e
root=$2/root
mount --make-rprivate /
mkdir "$root" && mount --bind / "$root"
for each in OWN; do mount -t tmpfs -o mode=755 own "$root/$each"; done
chmod 1777 "$root/tmp" "$root/var/tmp"
cp -a /etc/. "$root/etc/"
rm -rf "$root"/etc/systemd/system/* "$root/etc/federator"
mkdir "$root/mnt/given" "$root/mnt/packages"
mount --bind "$3" "$root/mnt/given"
mount --bind "$4" "$root/mnt/packages"
case $5 in /usr*) ;; *) mkdir -p "$root$5" && mount --bind "$5" "$root$5" ;; esac
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 dev "$root/dev"
for each in null zero full random urandom tty; do touch "$root/dev/$each" && mount --bind "/dev/$each" "$root/dev/$each"; done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 groups "$root/sys/fs/cgroup"
if [ -n "$1" ]; then
  mkdir "$root/sys/fs/cgroup/systemd"
  mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
else
  mount -t cgroup2 cgroup "$root/sys/fs/cgroup"
fi
mount -o remount,bind,ro "$root"
cd "$root"
pivot_root . srv
umount -l /srv
exec env -i container=tests PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=basic.target --log-target=console
' boot "$@"
""".replace("OWN", OWN)


def missing() -> str:
    """Why it cannot be; empty: it can."""
    if os.geteuid() != 0:
        return "a host of the tests' own wants root"
    lacking = [
        name
        for name in ("systemctl", "unshare", "nsenter", "runuser", "setpriv")
        if shutil.which(name) is None
    ]
    lacking += [] if Path("/lib/systemd/systemd").exists() else ["systemd"]
    return (
        f"{', '.join(lacking)} cannot be found; on Debian and Ubuntu: apt-get install systemd"
        if lacking
        else ""
    )


class Host:
    """One, whose `given` is this folder."""

    def __init__(self, place: Path, given: Path) -> None:
        place.mkdir()
        self._groups = HIERARCHY / f"federator-{os.getpid()}-{place.name}" if HIERARCHY.exists() else None
        words = [
            str(self._groups or ""),
            str(place),
            str(given),
            sysconfig.get_paths()["purelib"],
            sys.base_prefix,
        ]
        with (place / "console").open("wb") as console:
            self._boot = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "sh", "-c", BOOT, "boot", *words],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self._console = place / "console"
        wait_until(self._is_up, "the host")

    def __call__(self, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Run it there as root; what it says on both channels is in `stdout`."""
        return subprocess.run(
            [*self._inside(), *words],
            input=given,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=3 * PATIENCE_S,
            check=False,
        )

    def said(self, *words: str, given: str = "") -> str:
        """What a command says that must succeed."""
        ran = self(*words, given=given)
        assert ran.returncode == 0, ran.stdout
        return ran.stdout

    def end(self) -> None:
        """All its processes, at once."""
        self._boot.kill()
        self._boot.wait()
        if self._groups is None:
            return
        for folder, _, _ in os.walk(self._groups, topdown=False):
            wait_until(lambda: _removed(Path(folder)), "the end of the host's processes")  # noqa: B023 - waited for here

    def _inside(self) -> list[str]:
        (first,) = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children").read_text().split()
        clean = ["env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]
        return ["nsenter", f"--target={first}", *["-m", "-p", "-u", "-i", "-C", "-r", "-w"], *clean]

    def _is_up(self) -> bool:
        assert self._boot.poll() is None, self._console.read_text(errors="replace")
        try:
            return self("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")
        except ValueError:  # no process yet
            return False


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
