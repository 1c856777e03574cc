"""What people write by hand, key by key: the job file and the site file.

The readers in the code know which keys there are; what a key means to its writer is said here. `check` refuses a table that
does not have exactly the keys of its reader, so neither can grow without the other.
"""

from collections.abc import Collection
from typing import NamedTuple


class Written(NamedTuple):
    """One key: how its value is written, what holds when it is left out, and what it means."""

    key: str
    form: str
    default: str
    meaning: str


SITE_FILE = (
    Written("site", "`basel`", "–", "The site's name in the federation. Needed."),
    Written("kind", "`onprem`, `cloud`, `edge`", "–", "What sort of site it is, as a note: what counts is what its join token was made with."),
    Written("region", "`eu-central`", "–", "Short for the label `region`. It counts for policies as it is when the site joins, where no administrator's token names another."),
    Written("labels", "`{rack: r1}`", "–", "Free words that jobs and policies can select by."),
    Written("price_per_gpu_hour", "`0.4 USD`", "an eighth of its model's list price, in plans alone", "What an hour of one of its GPUs costs at the margin (power, wear), for plans and reports. `0` says that it costs nothing."),
    Written("pools", "a list", "one pool, as found on the host", "Nodes of one shape; see below."),
    Written("kube", "a mapping", "–", "Instead of `pools`: a Kubernetes cluster whose pods run the work; see below."),
    Written("slurm", "a mapping", "–", "Instead of `pools`: a Slurm cluster whose jobs run the work; see below."),
    Written("lend", "a mapping", "everything", "What of it the federation may use; see below."),
    Written("dispatcher", "`http://127.0.0.1:7070`", "as joined", "Where the agent dials to."),
    Written("member", "`basel-2`", "the site's name", "This agent's own name, where a site has several."),
    Written("address", "`10.0.0.5`", "its address on the way to the dispatcher", "Under which the site's other members reach this host. Needed where that way is a tunnel or a proxy on the host itself."),
    Written("ca", "`/etc/federator/ca.pem`", "those that this host knows", "The authority behind the dispatcher's certificate: a PEM file, or its text."),
    Written("proxy", "`http://proxy:3128`, `none`", "as `HTTPS_PROXY` and its like say", "The proxy on the way to the dispatcher."),
    Written("secrets", "`{wandb: /etc/federator/wandb.env}`", "none", "By name, what jobs that ask for it get as variables: a file of `NAME=value` lines, on a Kubernetes site a Secret of the namespace. Long: `{file: …}` or `{kubernetes: …}`, with `queues: [research, team:vision]` whose jobs get it ([names](#whose-work))."),
    Written("data_addresses", "`[s3://public, {address: s3://genomics, queues: [research]}]`", "all; where jobs have other rights than the agent, no files for checkpoints", "Which addresses jobs may name for inputs and checkpoints: these and all below them; an entry with `queues` for the jobs of [those](#whose-work) alone. `[]`: none. The agent's own folder is nobody's to name."),
    Written("data_networks", "`[10.20.0.0/16]`", "none", "Networks of the site's own from whose servers inputs are fetched by `http(s)`. Without a word of it only the public Internet is asked: no address of the host itself, of a private network, or of a cloud's metadata service, whatever name stands for it."),
    Written("isolation", "`shared-trust`", "the strongest mode that works", "How jobs are kept apart from each other and from the agent, where they are processes of this host: `users`, `sandbox` or `shared-trust`; or a mapping, see below."),
    Written("images", "`podman`, `apptainer`, `enroot`, `none`", "`none`", "By which program jobs run in the `image` that they name, at hosts and under Slurm. Long: `{engine: podman, pull: missing}`; `pull` is `missing`, `always` or `never`, and is podman's alone. On a Kubernetes site it is left out."),
    Written("inputs_cache", "`500GiB`", "half of the file system", "How much of the disk the inputs of jobs may keep. What is not in use goes first, the least recently read."),
    Written("state_dir", "`/var/lib/federator-agent`", "`/var/lib/federator-agent`", "Where identity, running work and unsent results live."),
    Written("host_key", "`/etc/federator/host.key`", "`host.key` in `state_dir`", "File of the host's second key, made when it joins. It signs for a change of the agent's key: on another disk, or where only root reads, a stolen copy of `state_dir` changes nothing."),
    Written("clock", "`system`", "`system`", "As the dispatcher's; only demonstrations use another."),
    Written("watch_gpus", "`false`", "`true`", "Whether GPUs of this host that ail, or that others use, take no new work."),
    Written("report_every", "`5s`", "as the dispatcher says", "How often to report when nothing changes. Jobs with `stop_within` are taken only up to `10s`."),
)  # fmt: skip

SITE_FILE_PARTS = {
    "pools": (
        Written("name", "`a100`", "–", "The pool's name. Needed."),
        Written("model", "`A100`", "as found", "GPU model."),
        Written("gpu_memory", "`80GB`", "as found", "Memory of each GPU."),
        Written("nodes", "`4`", "1", "How many nodes of this shape the agent runs work on."),
        Written("gpus_per_node", "`8`", "as found", "GPUs of each."),
        Written("cpus_per_node", "`64`", "as found", "Cores of each."),
        Written("memory_per_node", "`512GiB`", "as found", "Memory of each."),
        Written("shared", "`2`", "0", "So many GPUs of each are shared: they make a pool of their own, `NAME-shared`, for jobs that ask for a part of a GPU. `lend` names it by that."),
    ),
    "isolation": (
        Written("mode", "`users`", "the strongest that works", "`users`: the agent is root, each job runs as a Unix user of its own in namespaces of its own. `sandbox`: in namespaces, as the agent's user. Both want bubblewrap. `shared-trust`: nothing keeps jobs apart. With a mode that does not work the agent does not start."),
        Written("users", "`{ada: ada}`", "none", "Owners in the federation, each with the account of this host that their jobs run as."),
        Written("range", "`200000-265535`", "`200000-265535`", "User ids for all other jobs, one for each placement. Nobody else on the host has them; of two agents on one host each has its own."),
        Written("shared", "`[/scratch]`", "none", "Folders that jobs use as the host has them, although they lie where jobs see nothing (the agent's home, `/tmp`, `/run`) or, in a sandbox, may write nothing."),
        Written("processes", "`16384`", "`16384`", "Most processes and threads of a job's user; in a sandbox of each rank."),
        Written("limits", "`false`", "`true`", "Whether each rank has a control group of its own, where the agent may make some: the memory that its job asked for is its limit, CPUs are a weight, and `processes` holds for each rank. `federator-agent check` says whether they hold."),
        Written("trusts", "`[owner:ada, team:vision, queue:research]`, `['*']`", "the administrators of the federation and of the site", "With `shared-trust`: [whose work](#whose-work) is taken."),
    ),
    "slurm": (
        Written("shared_dir", "`/shared/federator`", "–", "A directory of this agent's alone that the nodes see under the same path. Needed."),
        Written("partitions", "`[gpu, cpu]`", "all that are up", "Partitions that are lent: each is a pool. A node of several belongs to the first."),
        Written("gpus", '`{a100: "A100:80GB"}`', "the type is the model", "Model and memory by GPU type in gres.conf; `gpu` stands for those without a type. Of a type that is but a part of a GPU also that part, as `A100:40GB:0.5`; left out, the name of a MIG instance tells it."),
        Written("shared", "`{gpu: 2}`", "none", "By partition, so many GPUs of each node that has shards go to jobs that ask for parts: a pool of their own, `PARTITION-shared`. `lend` names it by that."),
        Written("queues", "`{research/*: {account: res, qos: low}, team:vision: {account: vision}}`", "as Slurm decides", "By [whose work](#whose-work) it is: `account`, `qos`, another `partition`, the `user` that runs such jobs. `*`: all others."),
        Written("users", "`{ann@example.org: ann}`", "as `queues` says", "By owner in the federation, the account that runs his jobs, whatever their queue and team. The agent must be root; what then has no user, neither here nor by `queues`, is refused."),
        Written("start_within", "`10m`", "`10m`", "How long a job may wait in Slurm's queue before it is given back with Slurm's reason."),
        Written("conf", "`/etc/slurm/slurm.conf`", "as Slurm's commands find it", "Which cluster, where there are several."),
    ),
    "kube": (
        Written("image", "`pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime`", "–", "What jobs run in. It has `/bin/sh`. Needed."),
        Written("namespace", "`federator-jobs`", "`federator`", "Where their pods are made: better another one than the agent's own."),
        Written("run_as", "`1000`, `image`", "`65532`", "The number of the user that jobs run as, without privileges; `image`: whom their image names, which may be root. The namespace must then take the pod security profile `baseline`."),
        Written("kubeconfig", "`/etc/federator/kubeconfig`", "the agent is a pod of the cluster", "How the cluster is reached."),
        Written("context", "`lab`", "the file's current one", "Which cluster of that file."),
        Written("side_image", "`busybox:1.36`", "`busybox:1.36`", "What runs beside each job to bring files in and out. It has `sh`, `tar`, `head`, `find`, `xargs` and `gzip`."),
        Written("service_account", "`jobs`", "the namespace's default", "Whose the jobs' pods are; they get no token of it."),
        Written("service_accounts", "`{research/*: research, team:vision: vision}`", "as `service_account` says", "By [whose work](#whose-work) it is, the service account of its pods. `*`: all others."),
        Written("priority_class", "`low`", "the cluster's default", "Of the jobs' pods, so that local work can push them off."),
        Written("tolerations", "`[{key: gpu, operator: Exists}]`", "none", "Taints of nodes that are used all the same. That of the GPU resource always is, for jobs with GPUs."),
        Written("start_within", "`5m`", "`5m`", "All pods of a placement have a node by then, or all are taken back."),
        Written("checkpoints", "`shared-claim`, `none`", "`none`", "The claim on a volume of all nodes on which checkpoints outlive their pod."),
        Written("pools", "a list", "one of each GPU product, of each sort of its parts, and `cpu`", "Each a `name` and a `selector` of node labels; also `model`, `gpu_memory`, the `resource` that counts its GPUs or parts of such (left out: `nvidia.com/gpu`), and `part`, which of a GPU each unit of that is. What is left out is looked up on the nodes."),
        Written("data", "`{image: federator:latest, secret: s3, cache: {host_path: /var/cache/federator}, volumes: [{path: /data, claim: datasets}]}`", "no data is brought", "How pods get `inputs`, and their checkpoints reach `checkpoint.uri`. `image`: of the side container of such pods, with `federator[agent,aws]` in it; needed. `secret`: whose keys are its variables, such as credentials for S3. `cache`: where inputs are kept for later jobs, a `claim` or a `host_path` of each node; without, they go with the pod. `volumes`: what `file:///` addresses lead to."),
        Written("kueue_queue", "`research`", "–", "The local queue of Kueue that admits the pods, a gang as one group. Never tried on a real Kueue."),
    ),
    "lend": (
        Written("gpus", "`{a100: 6}`", "all", "Most GPUs lent, by pool."),
        Written("pools", "`[a100]`", "all", "Pools that are lent at all."),
        Written("hours", "`18:00-08:00`", "always", "When new work may start, by the clock of `timezone`."),
        Written("timezone", "`Europe/Zurich`", "UTC", "Time zone of `hours`."),
        Written("queues", "`[research, team:vision]`", "all", "[Whose work](#whose-work) is taken."),
    ),
}  # fmt: skip


def check(name: str, written: Collection[Written], known: Collection[str]) -> None:
    """Refuse a table that does not have exactly the keys that the code reads."""
    listed = {each.key for each in written}
    missing, stale = set(known) - listed, listed - set(known)
    if missing or stale:
        raise SystemExit(f"tools/written_fields.py, {name}: add {sorted(missing)}, remove {sorted(stale)}")
