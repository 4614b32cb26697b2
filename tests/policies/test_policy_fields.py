"""Policy files that are damaged: every field is checked, and the error names it."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conbo import GaussianProcess, Study, load_policy
from conbo.errors import RecordError
from conbo.policies.gp_argmax import GpArgmax
from conbo.policies.policy import Policy
from conbo.policies.policy_file import to_record
from conbo.record_fields import checksum
from conbo.spaces import Categorical, Real, Space

SPACE = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1), "y": Real(0, 1)})


@cache
def text(states: str = "product", noise: float | None = None) -> str:
    """The file of a small policy."""
    study = Study(SPACE, method="uniform", model=GaussianProcess(states=states))
    for trial in study.ask(8):
        study.tell(trial, math.sin(5 * trial.action["x"]) + trial.action["y"], noise)
    return json.dumps(to_record(study.policy().belief, True, GpArgmax()))


def changed(record: Any, path: str, value: Any) -> Any:
    """The record with another value at the end of the path."""
    *parents, last = path.split(".")
    place = record
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    if value is ...:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return record


def load(tmp_path: Path, record: Any, seal: bool = True) -> Policy:
    if seal:
        content = {name: value for name, value in record.items() if name != "checksum"}
        record = content | {"checksum": checksum(content)}
    (tmp_path / "policy.json").write_text(json.dumps(record))
    return load_policy(tmp_path / "policy.json")


PRODUCT = [
    ("rewards.2", math.nan, "a record must hold finite numbers, but got NaN"),
    ("rewards.2", "high", "`rewards` must hold nothing but a finite number, but got 'high'"),
    ("rewards", [], "`rewards` must be 1 to 1000000 numbers, but are 0"),
    ("points.3", [0.5, 0.5], "row 3 of `points` must be a list of 3 numbers"),
    ("points.3.1", 1.5, r"row 3 of `points` must hold nothing but a number from .* to 1, but got 1\.5"),
    ("scale", 0, "`scale` must be a number of at least .*, but got 0"),
    ("scale", 1e-30, "`shift` and `scale` must be those of the rewards"),
    ("shift", 1e30, "`shift` and `scale` must be those of the rewards"),
    ("scale", 1e30, "`shift` and `scale` must be those of the rewards"),
    ("kernel", ..., "`kernel` must be there, but is missing"),
    ("kernel", 3, "`kernel` must be an object with names, but got 3"),
    ("kernel.type", "oracle", "`kernel.type` must be one of product, trend, multi-task, but got 'oracle'"),
    ("kernel.profile", "flat", "`kernel.profile` must be one of matern52, .*, but got 'flat'"),
    ("kernel.outputscale", 0, "`kernel.outputscale` must not be zero"),
    ("kernel.outputscale", True, "`kernel.outputscale` must be a number from 0 to .*, but got True"),
    ("kernel.state_lengthscales", [], "`kernel.state_lengthscales` must be a list of 1 numbers"),
    ("kernel.action_lengthscales.1", -1, "`kernel.action_lengthscales` must hold nothing but .*, but got -1"),
    ("kernel.warp", {"log_a": [0, 0]}, "`kernel.warp.log_b` must be there, but is missing"),
    ("kernel.lengthscale", 1, "`kernel.lengthscale` must not be there"),
    ("noise", -1, "`noise` must be a number from 0 to .*, but got -1"),
    ("noise", {"log_level": 0, "slopes": [1]}, "`noise.slopes` must be a list of 4 numbers"),
    ("direction", "up", "`direction` must be one of maximize, minimize, but got 'up'"),
    ("space.actions.0.low", 2, "`low < high` must hold"),
    ("space.actions.0.type", ["real"], r"`space.actions\[0\].type` must be one of real, .*, but got \['real'\]"),
    ("space.actions.1.name", "x", r"`space.actions\[1\].name` must not be that of another parameter, but got 'x'"),
    ("space.states.0.choices", "ab", r"`space.states\[0\].choices` must be a list, but got 'ab'"),
    ("policy.type", "oracle", "`policy.type` must be one of model, .*, but got 'oracle'"),
    ("policy.candidates", 10**9, "`policy.candidates` must be a whole number from 1 to 4096, but got 1000000000"),
    ("policy", {"type": "single-action", "action": [0.5]}, "`policy.action` must be a list of 2 numbers"),
    ("reward_noise", [1.0], "`reward_noise` must be a list of 8 numbers"),
]


@pytest.mark.parametrize(("path", "value", "message"), PRODUCT)
def test_a_damaged_field_is_named(tmp_path: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(RecordError, match=f"policy.json' is no policy that can be used: {message}"):
        load(tmp_path, changed(json.loads(text()), path, value))


@pytest.mark.parametrize(
    ("states", "path", "value", "message"),
    [
        ("trend", "kernel.trend", -1, "`kernel.trend` must be a number from 0"),
        ("trend", "kernel.difference", None, "`kernel.difference` must be a number from 0 to .*, but got None"),
        ("multi-task", "kernel.own", [[1.0]], "`kernel.own` must be a list of 2 numbers"),
        ("multi-task", "kernel.loadings.0.0", [1.0], "`kernel.loadings` must have rows of one length"),
        ("multi-task", "kernel.loadings", [], "`kernel.loadings` must be a list of 1"),
    ],
)
def test_a_damaged_kernel_of_categories_is_named(
    tmp_path: Path, states: str, path: str, value: Any, message: str
) -> None:
    with pytest.raises(RecordError, match=message):
        load(tmp_path, changed(json.loads(text(states)), path, value))


def test_the_checksum_sees_what_the_fields_cannot(tmp_path: Path) -> None:
    record = changed(json.loads(text()), "rewards.2", 0.25)
    with pytest.raises(RecordError, match=r"`checksum` must be that of the record, but is not: what conbo \d.* wrote"):
        load(tmp_path, record, seal=False)
    assert load(tmp_path, record).belief.observations.rewards[2] == 0.25


def test_white_space_and_order_do_not_matter(tmp_path: Path) -> None:
    record = json.loads(text())
    (tmp_path / "policy.json").write_text(json.dumps(dict(reversed(record.items())), indent=2))
    assert load_policy(tmp_path / "policy.json").predict({"k": "a"})


def test_a_checksum_cannot_be_lost(tmp_path: Path) -> None:
    record = json.loads(text())
    with pytest.raises(RecordError, match="`checksum` must be there, but is missing"):
        load(tmp_path, changed(record, "checksum", ...), seal=False)
    with pytest.raises(RecordError, match="`conbo` must not be there"):
        load(tmp_path, json.loads(text()) | {"format": "conbo-policy-1"}, seal=False)


def test_known_noise_is_checked(tmp_path: Path) -> None:
    record = json.loads(text(noise=0.1))
    with pytest.raises(RecordError, match="`reward_noise` must hold nothing but a number of at least 0, but got -1"):
        load(tmp_path, changed(record, "reward_noise.0", -1))
    assert load(tmp_path, json.loads(text(noise=0.1))).belief.observations.noise is not None


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    policy = load(tmp_path, json.loads(text()))
    path = tmp_path / "other.json"
    with pytest.raises(RecordError, match=r"`policy.candidates` must be a whole number from 1 to 4096, but got 10000"):
        Policy(policy.belief, recipe=GpArgmax(candidates=10_000)).save(path)
    assert not path.exists()
