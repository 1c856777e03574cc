"""Each field of the job file changes the request, each mistake is named with its remedy, and nothing else ever comes out."""

from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid, NotSupported
from federator.kernel.ids import content_hash
from federator.model.arrays import Indices
from federator.model.jobs import (
    Accelerators,
    Checkpoint,
    Input,
    JobSpec,
    Notify,
    PlacementConstraints,
    Resources,
    Retry,
)
from federator.wire.jobfile import (
    JobFile,
    JobRequest,
    encode_spec,
    read_job,
    read_job_document,
    spec_hash,
)
from federator.wire.yamltext import read_document

NOW = 1_760_000_000.0
BLOB = "ab" * 32

# The example of the design, less what this version refuses.
EXAMPLE = f"""
name: train-vision
queue: research/vision
team: vision
priority: 60
workdir: sha256:{BLOB}
setup: pip install -r requirements.txt
run: torchrun train.py --ckpt $FEDERATOR_CHECKPOINT_DIR
env: {{NCCL_DEBUG: INFO, LEVEL: 3, FAST: true}}
outputs: [results/**]
nodes: 2
resources:
  gpus: "A100:80GB:4"
  cpus: 32
  memory: 256GiB
  shm: 16GiB
max_duration: 4h
estimate: 3h
patience: 30m
speed: {{A100: 1.0, H100: 1.9}}
deadline: 2026-12-01T08:00:00Z
value: 200 USD
max_cost: 40 USD
spot_policy: spot
checkpoint: {{signal: SIGUSR1, grace: 60s, every: 10m, uri: s3://team/saved}}
retry: {{on: [preemption, error], max: 5, backoff: 90s}}
on_disconnect: keep
placement: {{kinds: [onprem, cloud], sites: [north, south], not_sites: [west], labels: {{region: eu}}}}
inputs: [{{uri: s3://datasets/imagenet, size: 150GB}}]
image: pytorch/pytorch:2.4.0
secrets: [wandb, hub]
licenses: {{matlab: 2}}
after: [preprocess, job-01jd3v0000000000000000000a]
array: 0-3,7
labels: {{team: vision}}
notify: [end, fail]
client_id: nightly-2026-11-30
"""


PLACES = PlacementConstraints(
    kinds=("onprem", "cloud"), sites=("north", "south"), not_sites=("west",), labels={"region": "eu"}
)


def read(**document: object) -> JobRequest:
    return read_job({"run": "true", **document}, now=NOW)


def test_the_documented_example_is_read_whole() -> None:
    assert read_job_document(read_document(EXAMPLE), now=NOW) == JobRequest(
        spec=JobSpec(
            name="train-vision",
            run="torchrun train.py --ckpt $FEDERATOR_CHECKPOINT_DIR",
            setup="pip install -r requirements.txt",
            workdir=BLOB,
            env={"NCCL_DEBUG": "INFO", "LEVEL": "3", "FAST": "true"},
            outputs=("results/**",),
            nodes=2,
            resources=Resources(
                gpus=Accelerators(count=4, models=("A100",), memory_mib=76294),
                cpus_milli=32_000,
                memory_mib=256 * 1024,
                shm_mib=16 * 1024,
            ),
            estimate_s=10800.0,
            patience_s=1800.0,
            speed={"A100": 1.0, "H100": 1.9},
            spot_policy="spot",
            checkpoint=Checkpoint(signal="USR1", grace_s=60.0, every_s=600.0, uri="s3://team/saved"),
            retry=Retry(on=("preemption", "error"), max=5, backoff_s=90.0),
            placement=PLACES,
            labels={"team": "vision"},
            inputs=(Input("s3://datasets/imagenet", 150 * 10**9),),
            image="pytorch/pytorch:2.4.0",
            secrets=("wandb", "hub"),
            licenses={"matlab": 2},
        ),
        queue="research/vision",
        team="vision",
        priority=60,
        deadline_at=1_796_112_000.0,
        value_usd=200.0,
        max_cost_usd=40.0,
        max_duration_s=14400.0,
        after=("preprocess", "job-01jd3v0000000000000000000a"),
        array=Indices.of((0, 1, 2, 3, 7)),
        client_id="nightly-2026-11-30",
        notify=(Notify.END, Notify.FAIL),
    )


ELSEWHERE_TESTED = {"groups", "min_nodes", "max_nodes", "scaling", "every", "overlap", "framework", "success"}
"""By test_forms, test_launchers, and the tests of series."""


def test_the_example_uses_every_field_that_is_acted_on() -> None:
    """Together with the test above: a field that is read but changes nothing would show."""
    for field in JobFile.__struct_fields__:
        assert (
            f"\n{field}:" in EXAMPLE or field in {"command", "finish_within", "steps"} | ELSEWHERE_TESTED
        ), field


def test_a_file_that_holds_only_run_works() -> None:
    assert read_job_document(read_document("run: python train.py\n"), now=NOW) == JobRequest(
        spec=JobSpec(name="train", run="python train.py")
    )


def test_command_is_an_argument_vector() -> None:
    request = read_job({"command": ["sleep", 5]}, now=NOW)
    assert (request.spec.command, request.spec.run, request.spec.name) == (("sleep", "5"), None, "sleep")


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("python train.py --lr 0.1", "train"),
        ("LR=1 /opt/bin/bench --fast", "bench"),
        ("torchrun --standalone train_big.py", "train_big"),
        ("python -m pip", "pip"),
        ("$TOOL", "job"),
        ("'", "job"),
    ],
)
def test_a_job_without_a_name_is_called_after_its_program(run: str, name: str) -> None:
    assert read(run=run).spec.name == name


@pytest.mark.parametrize(
    ("gpus", "meant"),
    [
        (4, Accelerators(4)),
        ("4", Accelerators(4)),
        (0, Accelerators(0)),
        (2.0, Accelerators(2)),
        ("A100", Accelerators(1, ("A100",))),
        ("A100:4", Accelerators(4, ("A100",))),
        ("4:A100", Accelerators(4, ("A100",))),
        ("A100:80GB:4", Accelerators(4, ("A100",), 76294)),
        ("A100|H100:40GiB:4", Accelerators(4, ("A100", "H100"), 40960)),
        ("RTX-4090:2", Accelerators(2, ("RTX-4090",))),
        ("24GiB:2", Accelerators(2, (), 24576)),
        (
            {"count": 2, "models": ["A100", "H100"], "memory": "40GiB"},
            Accelerators(2, ("A100", "H100"), 40960),
        ),
    ],
)
@pytest.mark.parametrize("key", ["gpus", "accelerators"])
def test_gpus_as_people_write_them(gpus: object, meant: Accelerators, key: str) -> None:
    assert read(resources={key: gpus}).spec.resources.gpus == meant


def test_cpus_in_cores_or_thousandths() -> None:
    assert read(resources={"cpus": 0.5}).spec.resources.cpus_milli == 500
    assert read(resources={"cpus": "250m"}).spec.resources.cpus_milli == 250


def test_finish_within_counts_from_now() -> None:
    assert read(finish_within="12h").deadline_at == NOW + 43200


def test_value_must_is_not_an_amount() -> None:
    request = read(value="must")
    assert (request.must, request.value_usd) == (True, None)


def test_a_field_without_a_value_counts_as_not_written() -> None:
    assert read_job_document(read_document("run: 'true'\nqueue:\nimage: ~\n"), now=NOW) == read()


NOT_YET: dict[str, dict[str, Any]] = {
    "$.placement.together": {"placement": {"together": "spread"}, "resources": {"gpus": 0.5}},
}


@pytest.mark.parametrize("field", NOT_YET)
def test_fields_that_nobody_acts_on_yet_are_refused_by_name(field: str) -> None:
    with pytest.raises(NotSupported) as caught:
        read(**NOT_YET[field])
    assert caught.value.field == field
    assert "not supported yet" in str(caught.value)


@pytest.mark.parametrize("model", ["RTX4090", "MI300X:8", "GTX1080", "TITAN:1", "A100|TITAN"])
def test_models_that_look_like_a_count_of_others_are_taken(model: str) -> None:
    assert read(resources={"gpus": model}).spec.resources.gpus.models


@pytest.mark.parametrize("label", ["rack", "hostgroup", "zone"])
def test_nodes_may_be_together_by_any_label(label: str) -> None:
    assert read(placement={"together": label}).spec.placement.together == label


@pytest.mark.parametrize(
    ("document", "field", "says"),
    [
        ({"quue": "x"}, "$.quue", "did you mean queue?"),
        ({"num_nodes": 2}, "$.num_nodes", "did you mean nodes?"),
        ({"gpus": 2}, "$.gpus", "did you mean resources.gpus?"),
        ({"resources": {"gpu": 1}}, "$.resources.gpu", "did you mean gpus?"),
        ({"resources": {"gpus": 1, "accelerators": 1}}, "$.resources.accelerators", "one of the two"),
        ({"resources": {"gpus": -1}}, "$.resources.gpus", "from 0 to 128"),
        ({"resources": {"gpus": 1000}}, "$.resources.gpus", "from 0 to 128"),
        ({"resources": {"gpus": True}}, "$.resources.gpus", "whole number"),
        ({"resources": {"gpus": "A100:4:5"}}, "$.resources.gpus", "cannot be read"),
        ({"resources": {"gpus": "A100:"}}, "$.resources.gpus", "cannot be read"),
        ({"resources": {"gpus": "A 100"}}, "$.resources.gpus", "not the name of a GPU model"),
        ({"resources": {"gpus": "A100:0"}}, "$.resources.gpus", "asks for 0 GPUs"),
        ({"resources": {"gpus": ["A100"]}}, "$.resources.gpus", "neither a number nor a text"),
        ({"resources": {"gpus": "lots"}}, "$.resources.gpus", "lots:1 if it is a model"),
        ({"resources": {"gpus": "4x"}}, "$.resources.gpus", "did you mean 4?"),
        ({"resources": {"gpus": "4xA100"}}, "$.resources.gpus", "did you mean A100:4?"),
        ({"resources": {"gpus": "A100x4"}}, "$.resources.gpus", "did you mean A100:4?"),
        (
            {"resources": {"gpus": "0.5..2"}},
            "$.resources.gpus",
            "neither a range of whole GPUs nor one of parts",
        ),
        (
            {"resources": {"gpus": 4, "any_of": [{"gpus": "A100:2"}, {"gpus": "H100:1"}]}},
            "$.resources.gpus",
            "is also set in resources.any_of[0].gpus",
        ),
        ({"run": ["a", "b"]}, "$.run", "write one text"),
        ({"setup": ["a", "b"]}, "$.setup", "write one text, in quotes"),
        ({"placement": {"together": "hosts"}}, "$.placement.together", "did you mean host?"),
        ({"placement": {"together": "spred"}}, "$.placement.together", "did you mean spread?"),
        ({"resources": {"cpus": 0}}, "$.resources.cpus", "from 0.001 to 4096"),
        ({"resources": {"cpus": float("nan")}}, "$.resources.cpus", "out of range"),
        ({"resources": {"memory": 64}}, "$.resources.memory", "has no unit"),
        ({"resources": {"memory": "0GiB"}}, "$.resources.memory", "more than 0"),
        ({"resources": {"memory": "9999999TiB"}}, "$.resources.memory", "at most"),
        ({"resources": {"shm": "much"}}, "$.resources.shm", "not a size"),
        ({"resources": 4}, "$.resources", "write a mapping of gpus"),
        ({"nodes": 0}, "$.nodes", "from 1 to 4096"),
        ({"nodes": 10**400}, "$.nodes", "huge number"),
        ({"nodes": "2"}, "$.nodes", "whole number"),
        ({"priority": 101}, "$.priority", "from 0 to 100"),
        ({"max_duration": 3600}, "$.max_duration", "has no unit"),
        ({"max_duration": "0s"}, "$.max_duration", "too short"),
        ({"patience": 600}, "$.patience", "has no unit"),
        ({"patience": "8d"}, "$.patience", "at most 7d"),
        ({"estimate": "soon"}, "$.estimate", "not a duration"),
        ({"estimate": "2h", "max_duration": "1h"}, "$.estimate", "longer than max_duration"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "$.deadline", "in the past"),
        ({"deadline": "2026-12-01"}, "$.deadline", "zone"),
        ({"deadline": "2026-12-01T08:00:00Z", "finish_within": "1h"}, "$.finish_within", "one of the two"),
        ({"deadline": "90m"}, "$.deadline", "write finish_within: 90m"),
        ({"value": "-5 USD"}, "$.value", "not an amount"),
        ({"max_cost": -5}, "$.max_cost", "out of range"),
        ({"max_cost": "40 EUR"}, "$.max_cost", "not an amount"),
        ({"spot_policy": "spott"}, "$.spot_policy", "did you mean spot?"),
        ({"checkpoint": {"signal": "KILL"}}, "$.checkpoint.signal", "write one of TERM"),
        ({"checkpoint": {"grace": "2h"}}, "$.checkpoint.grace", "at most 1h"),
        ({"retry": {"on": ["eror"]}}, "$.retry.on[0]", "did you mean error?"),
        ({"retry": {"max": -1}}, "$.retry.max", "from 0 to 1000"),
        ({"on_disconnect": "stop"}, "$.on_disconnect", "write keep"),
        ({"on_disconnect": {}}, "$.on_disconnect.stop_within", "stop_within: 1h"),
        ({"on_disconnect": {"stop_in": "1h"}}, "$.on_disconnect.stop_in", "did you mean stop_within?"),
        ({"on_disconnect": {"stop_within": 60}}, "$.on_disconnect.stop_within", "has no unit"),
        ({"on_disconnect": {"stop_within": "59s"}}, "$.on_disconnect.stop_within", "write at least 1m"),
        (
            {"on_disconnect": {"stop_within": "1h"}, "checkpoint": {"grace": "1h"}},
            "$.on_disconnect.stop_within",
            "or shorten checkpoint.grace",
        ),
        ({"placement": {"kinds": ["onprm"]}}, "$.placement.kinds[0]", "did you mean onprem?"),
        ({"placement": {"sites": ["a"], "not_sites": ["a", "b"]}}, "$.placement.not_sites", "every site"),
        ({"after": ["no such/name"]}, "$.after[0]", "not a name"),
        ({"array": "9-0"}, "$.array", "not a range"),
        ({"array": "0-99:0"}, "$.array", "not a range"),
        ({"array": "1,1"}, "$.array", "twice"),
        ({"array": "0-9999998:2,1-9999999:2"}, "$.array", "begins before another ends"),
        ({"env": {"A B": "1"}}, "$.env", "not the name of a variable"),
        ({"env": {"FEDERATOR_JOB": "1"}}, "$.env.FEDERATOR_JOB", "set by the site"),
        ({"env": {"A": ["x"]}}, "$.env.A", "quote it"),
        ({"env": {"A": "x\0"}}, "$.env.A", "NUL"),
        ({"outputs": ["/etc/passwd"]}, "$.outputs[0]", "leaves the working directory"),
        ({"outputs": ["a/../../b"]}, "$.outputs[0]", "leaves the working directory"),
        ({"workdir": "."}, "$.workdir", "federator submit"),
        ({"name": "a b"}, "$.name", "not a name"),
        ({"name": "job-01jd3v0000000000000000000a"}, "$.name", "looks like the id"),
        ({"queue": "a//b"}, "$.queue", "not the path of a queue"),
        ({"queue": "\ud800"}, "$.queue", "surrogate"),
        ({"run": ""}, "$.run", "is empty"),
        ({"run": None}, "$.run", "nothing to run"),
        ({"command": ["x"]}, "$.run", "both run and command"),
        ({"run": None, "command": "x y"}, "$.command", "write a list"),
        ({"run": None, "command": []}, "$.command", "names no program"),
        ({"speed": {"A100": 0}}, "$.speed.A100", "from 0.001"),
        ({"labels": {"a": "x" * 300}}, "$.labels.a", "too long"),
        ({"client_id": 7}, "$.client_id", "quote it"),
        ({1: 2}, "$", "is not a text"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_remedy(
    document: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(Invalid) as caught:
        read_job({"run": "true", **document}, now=NOW)
    assert caught.value.field == field
    assert says in str(caught.value)


def test_a_mistake_in_a_file_has_its_line() -> None:
    with pytest.raises(
        Invalid, match=r"\$\.resources\.gpu: line 3: there is no field 'gpu' \(did you mean gpus\?\)"
    ):
        read_job_document(read_document("run: 'true'\nresources:\n  gpu: 1\n"), now=NOW)


def test_a_missing_field_is_reported_at_the_top_of_the_file() -> None:
    with pytest.raises(Invalid, match="line 1: nothing to run"):
        read_job_document(read_document("name: x\n"), now=NOW)


def test_names_of_other_systems_point_at_fields_that_exist() -> None:
    for ours in JobFile.elsewhere.values():
        assert ours.split(".")[0] in JobFile.__struct_fields__, ours


def test_equal_specs_have_one_hash_whatever_the_order_of_their_mappings() -> None:
    one, other = read(env={"A": "1", "B": "2"}).spec, read(env={"B": "2", "A": "1"}).spec
    assert encode_spec(one) == encode_spec(other)
    assert spec_hash(one) == spec_hash(other) == content_hash(encode_spec(one))
    assert spec_hash(one) != spec_hash(read(env={"A": "1"}).spec)
    assert msgspec.json.decode(encode_spec(one), type=JobSpec) == one


def test_gpu_models_are_the_same_in_small_letters() -> None:
    """A user of Slurm writes a100; a site says A100. They mean the same."""
    request = read_job({"run": "x", "resources": {"gpus": "a100|h100:2"}, "speed": {"a100": 1.0}}, now=0.0)
    assert request.spec.resources.gpus.models == ("A100", "H100")
    assert request.spec.speed == {"A100": 1.0}


def test_commands_that_one_argument_cannot_hold_are_refused() -> None:
    """By bytes: Linux starts no program with a longer one."""
    wide = "\u8a9e" * 43_700
    said = "takes at most 131071 in one .put long scripts and values in files"
    assert read_job({"run": wide[:43_690]}, now=0.0).spec.run
    for document in (
        {"run": wide},
        {"groups": [{"name": "head", "run": wide[:43_200]}]},
        {"run": "x", "env": {"A": wide}},
    ):
        with pytest.raises(Invalid, match=said):
            read_job(document, now=0.0)
