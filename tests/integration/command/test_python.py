"""The how-to about Python: its step of a workflow is taken from the page and run against a real dispatcher."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from federator import Client
from tests.docs.walkthrough import File, read_page
from tests.integration.command.conftest import Federation

PAGE = Path(__file__).parents[3] / "docs/howto/use-python.md"


@pytest.fixture
def step(federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the page, in the environment of somebody on the dispatcher's machine."""
    (code,) = [each for each in read_page(PAGE) if isinstance(each, File)]
    file = tmp_path / code.name
    file.write_text(code.content)
    spec = importlib.util.spec_from_file_location("federator_step", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("HOME", "FEDERATOR_STATE_DIR"):
        monkeypatch.setenv(name, federation.environ[name])
    return module.FederatorStep


def test_a_step_that_is_tried_again_finds_its_job(step: Any) -> None:
    job = step({"name": "step", "run": "echo done"}, step_id="run-1-step").execute()
    assert step({"name": "step", "run": "echo done"}, step_id="run-1-step").execute() == job
    assert step({"name": "step", "run": "echo done"}, step_id="run-2-step").execute() != job


def test_a_step_fails_with_its_job_and_ends_it_when_it_is_killed(step: Any) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)broken ended FAILED: .*no such data"):
        step({"name": "broken", "run": "echo no such data; exit 3"}, step_id="run-1-broken").execute()
    killed = step({"name": "killed", "run": "sleep 600"}, step_id="run-1-killed")
    with Client() as client:
        killed.submitted = client.submit({"name": "killed", "run": "sleep 600"}).jobs[0]
        killed.on_kill()
        assert client.wait(killed.submitted).job.status == "CANCELLED"


def test_lists_are_tables_in_a_notebook(step: Any) -> None:
    with Client() as client:
        sites = client.sites()
        assert sites[0].name == "north"
        assert "<td>north</td>" in sites._repr_html_()  # type: ignore[attr-defined]
        assert client.jobs()._repr_html_().startswith("<table>")
