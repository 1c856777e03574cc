"""The requests of a trace, and how long a replica takes for them.

A replica is Llama-2-70B on two H100 with continuous batching, as the authors of Splitwise (Patel et al., ISCA 2024) have measured it: `data/perf_model.csv` of the repository
Mutinifni/splitwise-sim, 16-bit weights, tensor parallel over two. It starts in 84 s: so long the same model takes to load in ServerlessLLM (Fu et al., OSDI 2024).
"""

import csv
import gzip
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

GPUS = 2
"""Of a replica."""
START_S = 84.0
_PROMPT_S = ((128, 0.049), (256, 0.052), (512, 0.084), (1024, 0.158), (2048, 0.308), (4096, 0.642), (8192, 1.339))  # fmt: skip
"""By tokens of the prompt: how long it takes, while no other request of the replica gets a token."""
_TOKEN_S = ((1, 0.0370), (2, 0.0374), (4, 0.0400), (8, 0.0404), (16, 0.0420), (32, 0.0523))
"""By requests at a time: how long one more token of each takes."""


class Request(NamedTuple):
    """One request."""

    at_s: float
    prompt: int
    """Tokens that it sends,"""
    tokens: int
    """and that it is answered."""

    @property
    def alone_s(self) -> float:
        """How long it takes where nothing else is worked on."""
        return prompt_s(self.prompt) + self.tokens * token_s(1)


def prompt_s(prompt: int) -> float:
    """How long a prompt of so many tokens takes."""
    return _between(_PROMPT_S, prompt)


def token_s(at_once: int) -> float:
    """How long a token takes where so many requests are worked on."""
    return _between(_TOKEN_S, at_once)


def _between(points: Sequence[tuple[int, float]], at: float) -> float:
    """On straight lines between the points, and on beyond the last."""
    if at <= points[0][0]:
        return points[0][1]
    high = min(bisect_left(points, at, key=lambda each: each[0]), len(points) - 1)
    (x0, y0), (x1, y1) = points[high - 1], points[high]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


def read(path: Path, service: str) -> list[Request]:
    """The requests of a service in a trace: a CSV, gzipped or not, with `service`, `t_s`, `context_tokens` and `generated_tokens`. The first comes at 0."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        rows = sorted(
            (float(row["t_s"]), int(row["context_tokens"]), max(1, int(row["generated_tokens"])))
            for row in csv.DictReader(file)
            if row["service"] == service
        )
    if not rows:
        raise SystemExit(f"no requests of {service} in {path}: name another --service")
    return [Request(at_s - rows[0][0], *tokens) for at_s, *tokens in rows]
