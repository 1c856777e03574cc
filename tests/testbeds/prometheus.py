"""A real Prometheus that scrapes one dispatcher, and its `promtool`."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from tests.support.waiting import until
from tests.testbeds.etcd import DIE_WITH_US
from tests.testbeds.ports import free_ports


def missing() -> str:
    """Why there can be none; empty: there can."""
    lacks = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"{' and '.join(lacks)} cannot be found; install Debian's prometheus" if lacks else ""


def test_rules(rules: Path, tests: list[dict[str, Any]], folder: Path) -> str:
    """Evaluate rules on series that are made up, as `promtool test rules` does; what it complains of."""
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    found = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    return "" if found.returncode == 0 else found.stdout + found.stderr


class Prometheus:
    """One that scrapes every second, with these rules."""

    def __init__(self, folder: Path, target: str, rules: Path) -> None:
        """`target`: host and port."""
        self._folder = folder
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "federator", "static_configs": [{"targets": [target]}]}],
        }
        folder.mkdir()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    async def __aenter__(self) -> Self:
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        words = [
            "prometheus", f"--config.file={self._folder / 'prometheus.yml'}", f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with (self._folder / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(*DIE_WITH_US, *words, stdout=log, stderr=log)
        self._http = aiohttp.ClientSession()
        try:
            await until(self._has_scraped, "Prometheus to have scraped the dispatcher three times")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()
        self._process.terminate()
        await self._process.wait()

    async def _has_scraped(self) -> bool:
        try:
            async with self._http.get(f"{self._url}/-/ready") as answer:
                return answer.status == 200 and bool(await self.query("sum_over_time(up[1m]) >= 3"))
        except aiohttp.ClientError:
            return False

    async def query(self, expression: str) -> list[Any]:
        """What an expression comes to now. Raises `AssertionError` with what is wrong with it."""
        async with self._http.get(f"{self._url}/api/v1/query", params={"query": expression}) as answer:
            said = json.loads(await answer.text())
        assert said["status"] == "success", (expression, said)
        result: list[Any] = said["data"]["result"]
        return result

    async def rules(self) -> list[dict[str, Any]]:
        """The rules as it has read and evaluated them."""
        async with self._http.get(f"{self._url}/api/v1/rules") as answer:
            groups = (await answer.json())["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]
