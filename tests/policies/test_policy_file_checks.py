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


ONE: dict[str, Any] = {"members": 1, "main_effects": "none", "output_warping": "none"}


@cache
def text(states: str = "product", noise: float | None = None) -> str:
    """The file of a small policy with one model."""
    model = GaussianProcess(state_kernel=states, **ONE)  # type: ignore[arg-type]
    study = Study(SPACE, method="uniform", model=model)
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


def with_one_model(record: Any) -> Any:
    """The record in the format before mixtures."""
    (member,) = record.pop("members")
    record.pop("predictive", None)
    return record | {name: member[name] for name in ("kernel", "constant", "noise")} | {"format": "conbo-policy-2"}


def load(tmp_path: Path, record: Any, seal: bool = True) -> Policy:
    if seal:
        content = {name: value for name, value in record.items() if name != "checksum"}
        record = content | {"checksum": checksum(content)}
    (tmp_path / "policy.json").write_text(json.dumps(record))
    return load_policy(tmp_path / "policy.json")


RECORD = [
    ("rewards.2", math.nan, "a record must hold finite numbers, but got NaN"),
    ("rewards.2", "high", "`rewards` must hold nothing but a finite number, but got 'high'"),
    ("rewards", [], "`rewards` must be 1 to 1000000 numbers, but are 0"),
    ("points.3", [0.5, 0.5], "row 3 of `points` must be a list of 3 numbers"),
    ("points.3.1", 1.5, r"row 3 of `points` must hold nothing but a number from .* to 1, but got 1\.5"),
    ("scale", 0, "`scale` must be a number of at least .*, but got 0"),
    ("scale", 1e-30, "`shift` and `scale` must be those of the rewards"),
    ("shift", 1e30, "`shift` and `scale` must be those of the rewards"),
    ("scale", 1e30, "`shift` and `scale` must be those of the rewards"),
    ("direction", "up", "`direction` must be one of maximize, minimize, but got 'up'"),
    ("space.actions.0.low", 2, "`low < high` must hold"),
    ("space.actions.0.type", ["real"], r"`space.actions\[0\].type` must be one of real, .*, but got \['real'\]"),
    ("space.actions.1.name", "x", r"`space.actions\[1\].name` must not be that of another parameter, but got 'x'"),
    ("space.states.0.choices", "ab", r"`space.states\[0\].choices` must be a list, but got 'ab'"),
    ("policy.type", "oracle", "`policy.type` must be one of model, .*, but got 'oracle'"),
    ("policy.candidates", 10**9, "`policy.candidates` must be a whole number from 1 to 4096, but got 1000000000"),
    ("policy", {"type": "single-action", "action": [0.5]}, "`policy.action` must be a list of 2 numbers"),
    ("policy", {"type": "on-steps", "columns": [2], "first": [0], "step": [1]}, "`policy.columns` must be a whole"),
    ("policy", {"type": "on-steps", "columns": [0], "first": [5], "step": [1]}, "`policy.first` must be in the range"),
    ("policy", {"type": "on-steps", "columns": [0], "first": [0], "step": [0]}, "`policy.step` must hold nothing but"),
    ("reward_noise", [1.0], "`reward_noise` must be a list of 8 numbers"),
]

MODEL = [
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
    ("constant", 1e7, r"`constant` must be a number from -1e\+06 to 1e\+06, but got 10000000.0"),
]


@pytest.mark.parametrize(("path", "value", "message"), RECORD)
def test_a_damaged_field_is_named(tmp_path: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(RecordError, match=f"policy.json' is no policy that can be used: {message}"):
        load(tmp_path, changed(json.loads(text()), path, value))


@pytest.mark.parametrize(("path", "value", "message"), MODEL)
def test_a_damaged_field_of_a_model_is_named(tmp_path: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message.replace("`", r"`members\[0\].", 1)):
        load(tmp_path, changed(json.loads(text()), f"members.0.{path}", value))
    with pytest.raises(RecordError, match=message):
        load(tmp_path, changed(with_one_model(json.loads(text())), path, value))


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
        load(tmp_path, changed(with_one_model(json.loads(text(states))), path, value))


MAIN_EFFECTS = {
    "type": "main-effects",
    "action_variance": 0.5,
    "state_variance": 0.25,
    "effect_lengthscales": [0.75],
}
TAIL = {"type": "low-tail", "pivot": 1.0, "width": 0.5, "shift": -0.25, "scale": 0.5, "power": 0.25}


def mixed() -> Any:
    """A record of three models: a plain one, one with main effects, and one of mapped rewards."""
    record = json.loads(text())
    (plain,) = record["members"]
    others = [{"kernel": MAIN_EFFECTS | {"interaction": plain["kernel"]}}, {"output": TAIL}]
    listed = [plain, *({**plain, **other} for other in others)]
    weighted = [member | {"weight": weight} for member, weight in zip(listed, (0.5, 0.25, 0.25), strict=True)]
    return json.loads(json.dumps(record | {"members": weighted}))


MIXED = [
    ("members", [], "`members` must be 1 to 40 models, but are 0"),
    ("members", {}, "`members` must be a list, but got {}"),
    ("members.1", 3, r"`members\[1\]` must be an object with names, but got 3"),
    ("members.1.weight", 0, r"`members\[1\].weight` must be a number from .*, but got 0"),
    ("members.1.weight", 0.3, r"the weights of `members` must add up to 1, but add up to 1\.05"),
    ("members.1.weights", 0.3, r"`members\[1\].weights` must not be there"),
    ("members.1.kernel.interaction", None, r"`members\[1\].kernel.interaction` must be an object"),
    ("members.1.kernel.interaction.type", "main-effects", r"`members\[1\].kernel.interaction.type` must be one of"),
    ("members.1.kernel.interaction.outputscale", -1, r"`members\[1\].kernel.interaction.outputscale` must be"),
    ("members.1.kernel.action_variance", -1, r"`members\[1\].kernel.action_variance` must be a number from 0 to"),
    ("members.1.kernel.state_variance", ..., r"`members\[1\].kernel.state_variance` must be there"),
    ("members.1.kernel.effect_lengthscales", [], r"`members\[1\].kernel.effect_lengthscales` must be a list of 1"),
    ("members.1.kernel.effect_lengthscales.0", 0, r"`members\[1\].kernel.effect_lengthscales` must hold nothing but"),
    ("members.2.output", None, r"`members\[2\].output` must be an object"),
    (
        "members.2.output.type",
        "top",
        r"`members\[2\].output.type` must be one of low-tail, limits, but got 'top'",
    ),
    ("members.2.output.width", 0, r"`members\[2\].output.width` must be a number from 1e-30 to"),
    ("members.2.output.scale", -1, r"`members\[2\].output.scale` must be a number from 1e-30 to"),
    ("members.2.output.power", 2, r"`members\[2\].output.power` must be a number from 0 to 1"),
    ("members.2.output.pivot", "low", r"`members\[2\].output.pivot` must be a number from"),
    ("members.2.output.low", 0, r"`members\[2\].output.low` must not be there"),
    ("members.2.output", {"type": "limits", "low": 1, "high": 1}, r"`members\[2\].output.low` must be below the high"),
    ("members.2.output", {"type": "limits", "low": None, "high": None}, r"`members\[2\].output.low` must be below"),
    (
        "members.2.output",
        {"type": "limits", "low": 0, "high": 1, "tail": {"type": "limits", "low": 0, "high": 1}},
        r"`members\[2\].output.tail.type` must be low-tail",
    ),
    ("members.2.output", {"type": "limits", "low": 1}, r"`members\[2\].output.high` must be there"),
    ("members.2.floor", "low", r"`members\[2\].floor` must be a number from"),
    ("members.2.floor", 0.5, r"`members\[2\].output` must be limits for `members\[2\].floor`"),
    ("members.0.floor", 0.5, r"`members\[0\].output` must be limits for `members\[0\].floor`, but is None"),
]


@pytest.mark.parametrize(("path", "value", "message"), MIXED)
def test_a_damaged_field_of_a_mixture_is_named(tmp_path: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        load(tmp_path, changed(mixed(), path, value))


def test_a_mixture_that_was_loaded_is_saved_as_it_was(tmp_path: Path) -> None:
    policy = load(tmp_path, mixed())
    policy.save(tmp_path / "again.json")
    again, first = (json.loads((tmp_path / name).read_text()) for name in ("again.json", "policy.json"))
    assert again == first
    plain, effects, mapped = policy.belief.posterior.members
    assert effects.kernel.record() == MAIN_EFFECTS | {"interaction": plain.kernel.record()}
    assert mapped.output.record() == TAIL


def test_categories_that_are_looked_up_have_no_main_effect(tmp_path: Path) -> None:
    record = json.loads(text("trend"))
    (member,) = record["members"]
    member["kernel"] = MAIN_EFFECTS | {"interaction": member["kernel"]}
    with pytest.raises(RecordError, match="effect_lengthscales` must be a list of 0 numbers"):
        load(tmp_path, record)
    member["kernel"]["effect_lengthscales"] = []
    with pytest.raises(RecordError, match="effect_lengthscales` must not be empty"):
        load(tmp_path, record)


def test_there_are_not_too_many_models(tmp_path: Path) -> None:
    record = json.loads(text())
    with pytest.raises(RecordError, match="`members` must be 1 to 40 models, but are 41"):
        load(tmp_path, record | {"members": [member | {"weight": 1 / 41} for member in record["members"] * 41]})


def test_a_file_of_the_format_before_mixtures(tmp_path: Path) -> None:
    one = load(tmp_path, with_one_model(json.loads(text())))
    assert one.predict({"k": "a"}) == load(tmp_path, changed(json.loads(text()), "predictive", ...)).predict({"k": "a"})


def test_models_for_predictions_are_checked_and_used(tmp_path: Path) -> None:
    saved = load(tmp_path, json.loads(text()))
    assert (
        saved.predict({"k": "a"}).std
        != load(tmp_path, changed(json.loads(text()), "predictive", ...)).predict({"k": "a"}).std
    )
    with pytest.raises(RecordError, match=r"`predictive\[3\].kernel.outputscale` must be a number"):
        load(tmp_path, changed(json.loads(text()), "predictive.3.kernel.outputscale", "large"))
    with pytest.raises(RecordError, match="the weights of `predictive` must add up to 1, but add up to"):
        load(tmp_path, changed(json.loads(text()), "predictive.0.weight", 0.9))
    one_model = with_one_model(json.loads(text())) | {"predictive": json.loads(text())["predictive"]}
    with pytest.raises(RecordError, match="`predictive` must not be there"):
        load(tmp_path, one_model)
    with pytest.raises(RecordError, match="`members` must not be there"):
        load(tmp_path, with_one_model(json.loads(text())) | {"members": []})
    with pytest.raises(RecordError, match="`members` must be there, but is missing"):
        load(tmp_path, with_one_model(json.loads(text())) | {"format": "conbo-policy-3"})


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
        load(tmp_path, with_one_model(json.loads(text())) | {"format": "conbo-policy-1"}, seal=False)


def test_known_noise_is_checked(tmp_path: Path) -> None:
    record = json.loads(text(noise=0.1))
    with pytest.raises(RecordError, match="`reward_noise` must hold nothing but a number of at least 0, but got -1"):
        load(tmp_path, changed(record, "reward_noise.0", -1))
    assert load(tmp_path, json.loads(text(noise=0.1))).belief.observations.noise is not None


def test_a_reward_that_came_after_the_last_fit_may_be_an_outlier(tmp_path: Path) -> None:
    # shift and scale are those of the rewards that the model was fitted to
    policy = load(tmp_path, changed(json.loads(text()), "rewards.7", -1e12))
    policy.save(tmp_path / "again.json")
    assert load_policy(tmp_path / "again.json").predict({"k": "a"}) == policy.predict({"k": "a"})


def test_known_noise_may_be_as_large_as_a_study_accepts(tmp_path: Path) -> None:
    policy = load(tmp_path, changed(json.loads(text(noise=0.1)), "reward_noise.0", 1e300))
    policy.save(tmp_path / "again.json")
    assert load_policy(tmp_path / "again.json").predict({"k": "a"}) == policy.predict({"k": "a"})


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    policy = load(tmp_path, json.loads(text()))
    path = tmp_path / "other.json"
    with pytest.raises(RecordError, match=r"`policy.candidates` must be a whole number from 1 to 4096, but got 10000"):
        Policy(policy.belief, recipe=GpArgmax(candidates=10_000)).save(path)
    assert not path.exists()


def test_effects_of_seeds_that_are_nearly_independent(tmp_path: Path) -> None:
    study = Study(SPACE, method="uniform", seeds=[3, 5, 8], model=GaussianProcess(**ONE))
    for trial in study.ask(18):
        study.tell(trial, math.sin(5 * trial.action["x"]) + 4.0 * (trial.seed or 0))
    record = to_record(study.policy().belief, True, GpArgmax())
    assert record["members"][0]["seed_effect"]["between"] == -0.5
    record["members"][0]["seed_effect"]["between"] = -1e-310
    with pytest.raises(RecordError, match=r"`members\[0\].seed_effect.between` must be 0 or at most -1e-09"):
        load(tmp_path, record)


@pytest.mark.parametrize(
    ("shear", "rule"),
    [
        ([[0.5]], r"`members\[0\].shear` must be a list of 2"),
        ([[0.5, 0.1], [0.0, 0.0]], r"row 0 of `members\[0\].shear` must"),
        ([[2.5], [0.0]], r"row 0 of `members\[0\].shear` must"),
    ],
)
def test_a_wrong_change_to_relative_actions_is_named(shear: list[list[float]], rule: str, tmp_path: Path) -> None:
    record = json.loads(text())
    record["members"][0]["shear"] = shear
    with pytest.raises(RecordError, match=rule):
        load(tmp_path, record)


def test_relative_actions_are_refused_with_limits_and_effects_of_seeds(tmp_path: Path) -> None:
    space = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)}, constraints=["x <= 0.9"])
    study = Study(space, method="uniform", model=GaussianProcess(**ONE))
    for trial in study.ask(8):
        study.tell(trial, math.sin(5 * trial.action["x"] - 3 * trial.state["s"]))
    record = to_record(study.policy().belief, True, GpArgmax())
    record["members"][0]["shear"] = [[0.5]]
    with pytest.raises(RecordError, match=r"`members\[0\].shear` must not be there in a space with limits"):
        load(tmp_path, record)
    record["members"][0]["seed_effect"] = {"constant": 0.3, "function": None, "between": 0.0}
    record["seeds"] = {"values": [0, 1, 0, 1, 0, 1, 0, 1], "total": None}
    with pytest.raises(RecordError, match=r"`members\[0\].shear` must not be there with `members\[0\].seed_effect`"):
        load(tmp_path, record)
