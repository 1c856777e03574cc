"""A job at a real Kubernetes tries to become more than a job: by its user, its capabilities, the cluster's API, and the container beside it."""

from pathlib import Path

import pytest

from tests.contract.runtimes.world import RuntimeWorld
from tests.testbeds.kubernetes.cluster import AGENTS, NAMESPACE, Admin, ApiError
from tests.testbeds.kubernetes.shared import Bed

TRIES = """
echo "user $(id -u) $(id -g)"
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
mkdir /made 2>/dev/null && echo "made a folder of the image"
touch /etc/passwd 2>/dev/null && echo "changed the users"
ls /var/run/secrets/kubernetes.io/serviceaccount/ 2>/dev/null && echo "found a token"
chroot / true 2>/dev/null && echo "changed its root"
mount -t tmpfs none /tmp 2>/dev/null && echo "mounted"
mknod /tmp/disk b 8 0 2>/dev/null && echo "made a device"
chown 0 "$0" 2>/dev/null && echo "gave away a file"
touch /federator/gate/go 2>/dev/null && echo "wrote at the gate"
echo over
"""


async def test_a_job_is_nobody_and_cannot_become_somebody(world: RuntimeWorld) -> None:
    record = await world.run(world.spec(TRIES, outputs=("*",)))
    (end,) = await world.over(record)
    said = dict(line.split(":\t") for line in world.log(record).splitlines() if ":\t" in line)
    done = [line for line in world.log(record).splitlines() if ":\t" not in line]
    assert end.exit_code == 0
    assert done == ["user 65532 65532", "over"]
    assert int(said["CapEff"], 16) == int(said["CapBnd"], 16) == 0
    assert said["NoNewPrivs"] == "1"
    assert said["Seccomp"] == "2", "the runtime's own filter"


async def test_what_jobs_leave_comes_back_whoever_they_are(world: RuntimeWorld, tmp_path: Path) -> None:
    """Also what a job has kept for itself alone: the container beside it is the same user."""
    record = await world.run(world.spec("umask 077; mkdir of; echo mine >of/it", outputs=("of/*",)))
    (end,) = await world.over(record)
    assert end.exit_code == 0
    spec = world.spec("x", outputs=("of/*",))
    archive = tmp_path / "outputs.tar.gz"
    assert await world.runtime.pack_outputs(record, spec, archive)


def _as_job(testbed: Bed) -> Admin:
    """Whoever has somehow come by a token of the jobs' service account."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/federator-job/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = testbed.admin.ask("POST", path, request)["status"]["token"]
    return Admin(testbed.admin.url, token, testbed.admin.ca)


def _as_agent(testbed: Bed) -> Admin:
    path = f"/api/v1/namespaces/{AGENTS}/serviceaccounts/federator-agent/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = testbed.admin.ask("POST", path, request)["status"]["token"]
    return Admin(testbed.admin.url, token, testbed.admin.ca)


READS = (
    f"/api/v1/namespaces/{AGENTS}/secrets",
    f"/api/v1/namespaces/{AGENTS}/secrets/federator-join",
    f"/api/v1/namespaces/{NAMESPACE}/secrets",
    f"/api/v1/namespaces/{AGENTS}/configmaps",
)


@pytest.mark.parametrize("path", [*READS, f"/api/v1/namespaces/{NAMESPACE}/pods", "/api/v1/nodes"])
def test_the_account_of_jobs_may_read_nothing(testbed: Bed, path: str) -> None:
    with pytest.raises(ApiError) as refused:
        _as_job(testbed).ask("GET", path)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        *(("GET", path) for path in READS),
        ("POST", f"/api/v1/namespaces/{AGENTS}/pods"),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/federator-job/token"),
        ("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"),
    ],
)
def test_an_agents_token_opens_no_secret_and_no_other_namespace(testbed: Bed, verb: str, path: str) -> None:
    with pytest.raises(ApiError) as refused:
        _as_agent(testbed).ask(verb, path, {} if verb == "POST" else None)
    assert refused.value.status == 403
