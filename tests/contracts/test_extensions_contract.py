"""The kernels of docs/extending.md work in every public place: methods, saved policies, reports, resumed studies."""

import json
import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from test_methods_contract import PAIRS, QUICK, SPACES, assert_valid, reward

import conbo
from conbo.belief import ModelLike
from conbo.gaussian_process import GaussianProcess
from conbo.optimizer import Optimizer
from conbo.policies.policy_file import read_kernel

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
KINDS = ("reals", "mixed")


@cache
def page() -> dict[str, Any]:
    """What the blocks of the page define; the studies that they run are left out."""
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "extending"}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = [line for line in block.splitlines() if not re.match(r"(study|policy|print|problem|mine)\b", line)]
        exec(compile("\n".join(lines), str(PAGE), "exec"), names)
    return names


def model(name: str) -> GaussianProcess:
    if name == "profile":
        return GaussianProcess(profile=page()["heavy_tails"], noise="small", input_warping="none")
    return GaussianProcess(profile="matern52", state_kernel=page()["level"], noise="small", input_warping="none")


MODELS = ("profile", "structure")
OF_METHODS = {"profile": "mixed", "structure": "reals"}  # the space in which all methods are tried


@pytest.mark.parametrize(
    ("name", "kind", "own"), [(*pair, own) for pair in PAIRS for own, kind in OF_METHODS.items() if pair[1] == kind]
)
def test_every_method(name: str, kind: str, own: str) -> None:
    optimizer = Optimizer(SPACES[kind], method=QUICK[name], model=model(own), initial=4)
    for trial in optimizer.ask(4):
        optimizer.tell(trial, reward(trial))
    assert_valid(SPACES[kind], optimizer.ask(2))


def learned(kind: str, own: ModelLike, storage: Path | None = None, n: int = 14) -> conbo.Study:
    study = conbo.Study(SPACES[kind], model=own, method="uniform", storage=storage)
    while (done := sum(trial.status == "completed" for trial in study.trials)) < n:
        trial = study.ask()
        study.tell(trial, reward(trial) + 0.01 * done)
    return study


@pytest.mark.parametrize("own", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_saved_policies(kind: str, own: str, tmp_path: Path) -> None:
    policy = learned(kind, model(own)).policy()
    policy.save(tmp_path / "policy.json")
    own_profile = partial(read_kernel, profile=page()["heavy_tails"])
    reader = own_profile if own == "profile" else page()["read_level_kernel"]
    again = conbo.load_policy(tmp_path / "policy.json", kernel=reader)
    states = [{"s": s, "k": "b", "m": 2} if kind == "mixed" else {"s": s} for s in (0.3, 0.9)]
    for before, after in zip(policy.predict_many(states), again.predict_many(states), strict=True):
        assert (after.mean, after.std) == pytest.approx((before.mean, before.std), rel=1e-9)


@pytest.mark.parametrize("own", ["structure", "profile"])
def test_reports(own: str, tmp_path: Path) -> None:
    conbo.report(learned("reals", replace(model(own), members=1)), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    found = re.search(r'id="explorer-record">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert set(json.loads(found[1])) >= {"table"}  # the page does not know this kernel


@pytest.mark.parametrize("own", MODELS)
def test_resumed_studies(own: str, tmp_path: Path) -> None:
    whole = learned("reals", model(own), n=12)
    learned("reals", model(own), tmp_path / "study.db", n=8)
    resumed = learned("reals", model(own), tmp_path / "study.db", n=12)
    assert resumed.trials == whole.trials
    assert resumed.policy().predict({"s": 0.4}) == whole.policy().predict({"s": 0.4})
    with pytest.raises(conbo.errors.StudyError, match=r"open it with Study\(\.\.\., model=\.\.\.\)"):
        conbo.open_study(tmp_path / "study.db")
