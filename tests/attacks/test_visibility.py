"""What a job runs, and with what, is its owner's, the team's and the administrators'; and credentials do not get into job files at all."""

from typing import Any

import pytest

from tests.integration.api.rig import Rig

JOB: dict[str, Any] = {
    "name": "train", "run": "python hushhush.py", "setup": "pip install hushhush", "env": {"MODE": "hushhush"},
    "outputs": ["hushhush/**"], "inputs": ["s3://hushhush/set"],
    "checkpoint": {"signal": "USR1", "uri": "s3://hushhush/saved"}, "secrets": ["hushhush"], "resources": {"gpus": 2},
}  # fmt: skip


async def test_what_a_job_runs_is_not_for_everybody(rig: Rig) -> None:
    job = await rig.submit("ada", **JOB)
    for path in (f"/v1/jobs/{job}", "/v1/jobs", f"/v1/jobs/{job}/events?follow=false", f"/v1/jobs/{job}/explain", "/v1/overview", "/v1/series"):  # fmt: skip
        for who in ("bob", "sam"):
            answer = await rig.ask("GET", path, who)
            assert answer.status == 200, path
            assert b"hushhush" not in answer.data, (path, who)
    for path in (f"/v1/jobs/{job}/logs", f"/v1/jobs/{job}/outputs"):
        problem = (await rig.ask("GET", path, "bob")).problem
        assert (problem["status"], problem["code"]) == (403, "forbidden")
    for who in ("ada", "pat", "root"):
        spec = (await rig.ask("GET", f"/v1/jobs/{job}", who)).json()["spec"]
        assert spec["run"] == "python hushhush.py", who
    row = (await rig.ask("GET", f"/v1/jobs/{job}", "bob")).json()
    assert (row["job"]["name"], row["spec"]["resources"]["gpus"]["count"]) == ("train", 2)
    assert row["spec"]["run"] == "(hidden)"


async def test_a_series_file_is_not_for_everybody(rig: Rig) -> None:
    fields = {**JOB, "every": "1h"}
    assert (await rig.ask("POST", "/v1/jobs", "ada", json=fields)).status == 201
    assert b"hushhush" not in (await rig.ask("GET", "/v1/series/train", "bob")).data
    assert b"hushhush" in (await rig.ask("GET", "/v1/series/train", "ada")).data


@pytest.mark.parametrize(
    "env",
    [
        {"HF_TOKEN": "x"}, {"AWS_SECRET_ACCESS_KEY": "x"}, {"AWS_ACCESS_KEY_ID": "x"}, {"db_password": "x"}, {"WANDB_API_KEY": "x"},
        {"X": "ghp_0123456789abcdefghij"}, {"X": "AKIAIOSFODNN7EXAMPLE"}, {"X": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"},
    ],
    ids=str,
)  # fmt: skip
async def test_credentials_are_refused_with_the_advice_to_use_secrets(rig: Rig, env: dict[str, str]) -> None:
    body = {"run": "true", "env": env}
    for path, asked in (
        ("/v1/jobs", body),
        ("/v1/preview", body),
        ("/v1/jobs", {**body, "name": "n", "every": "1h"}),
    ):
        problem = (await rig.ask("POST", path, "ada", json=asked)).problem
        assert (problem["status"], problem["field"]) == (400, f"$.env.{next(iter(env))}")
        assert "`secrets`" in problem["remedy"]
        assert next(iter(env.values())) not in problem["detail"].split()
    assert not rig.world.core.records.jobs


async def test_what_only_sounds_alike_is_taken(rig: Rig) -> None:
    env = {
        "PAD_TOKEN": "<pad>",
        "MAX_TOKENS": "4096",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_TOKEN": "",
        "KEYS": "a",
        "X": "sk-learn",
    }
    assert await rig.submit("ada", env=env)
