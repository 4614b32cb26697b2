"""Times of suggestions that were measured on a quiet machine, and ratios of such times.

`benchmarks/suggestion_times.py` measures them. The times in the recorded runs themselves were measured while many runs
shared a machine.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.stats import t

from conbo.experiments.paired_tests import INTERVAL
from conbo.spaces import Array


class Timed(NamedTuple):
    """What is timed: the suggestion of a batch of points by a method on a problem."""

    problem: str
    method: str
    batch: int = 1

    def __str__(self) -> str:
        return f"{self.method} on {self.problem}" + (f" (batches of {self.batch})" if self.batch > 1 else "")


class Ratio(NamedTuple):
    """The geometric mean of paired ratios, with the ends of its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2g} [{self.low:.2g}, {self.high:.2g}]"


Times: TypeAlias = Mapping[Timed, Array]  # seconds (seeds,) of a suggestion, for the same seeds in all entries


def read_times(path: Path) -> dict[Timed, Array]:
    """Read the measured times from a file; return an empty dictionary if there is no such file."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["times"]
    return {Timed(row["problem"], row["method"], row["batch"]): np.array(row["seconds"]) for row in rows}


def paired_ratio(seconds: Array, others: Array) -> Ratio:
    """The geometric mean of the ratios `seconds` / `others`, both (n,), with its 95 % confidence interval.

    The interval is a t-interval of the mean logarithm of the ratios.
    """
    logs = np.log(seconds) - np.log(others)
    reach = float(t.ppf((1 + INTERVAL) / 2, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
    mean = float(logs.mean())
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))
