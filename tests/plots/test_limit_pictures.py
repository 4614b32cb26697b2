"""Where actions keep their limits, and which limit holds the policy back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import conbo
from conbo import plots
from conbo.errors import SettingError
from conbo.plots.limits import binding, limit_names, probability
from conbo.plots.view import View, view_of
from conbo.reports.explorer import explorer_record
from conbo.reports.panels import limits_panel, policy_map_panel, sections
from learned_studies import view

ONE = conbo.GaussianProcess("squared-exponential", main_effects="none", input_warping="none", members=1)


def learned(space: conbo.Space, objective: Any, **settings: Any) -> View:
    study = conbo.Study(space, method="uniform", model=ONE, **settings)
    study.run(objective, 20, progress=False)
    return view_of(study)


@pytest.fixture(scope="module")
def shared() -> View:
    """More of both is better up to 0.3 + s, and both share what there is."""
    space = conbo.Space(
        {"s": conbo.Real(0, 1)},
        {"a": conbo.Real(0, 1), "b": conbo.Real(0, 1)},
        constraints=["a + b <= 1", "a <= 0.9"],
    )
    return learned(space, lambda s, x: -((x["a"] - 0.3 - 0.4 * s["s"]) ** 2) - (x["b"] - 0.3 - 0.4 * s["s"]) ** 2)


@pytest.fixture(scope="module")
def waiting() -> View:
    """More is better until the wait is too long, at x = 0.25 + 0.5 s."""
    space = conbo.Space({"s": conbo.Real(0, 1)}, {"x": conbo.Real(0, 1)})
    limits = {"wait": conbo.AtMost(0.5)}
    return learned(
        space, lambda s, x: {"reward": x["x"], "wait": 0.25 + x["x"] - 0.5 * s["s"]}, outcome_constraints=limits
    )


def policy_points(view: View, *states: float) -> torch.Tensor:
    rows = torch.tensor(states, dtype=torch.float64)[:, None]
    return torch.cat([rows, view.actions(rows)], -1)


def test_known_limits(shared: View, tmp_path: Path) -> None:
    points = torch.tensor([[0.5, 0.3, 0.6], [0.5, 0.6, 0.6], [0.5, 0.95, 0.0]], dtype=torch.float64)
    assert probability(shared, points).tolist() == [1.0, 0.0, 0.0]
    assert limit_names(shared) == ["a + b <= 1", "a <= 0.9"]
    assert binding(shared, policy_points(shared, 0.1, 0.95)) == [-1, 0]
    figure = plots.feasibility(shared, action="a")
    surface = figure.data[0]
    assert set(np.unique(surface.z)) == {0.0, 1.0}
    assert (surface.zmin, surface.zmax) == (0.0, 1.0)
    plots.save(figure, tmp_path / "limits.svg")
    worth = plots.acquisition(shared, action="a")  # nothing that is forbidden is worth an evaluation
    (star,) = (trace for trace in worth.data if trace.name == "worth most")
    assert star.y[0] <= 0.9
    assert np.array(worth.data[0].z)[np.array(worth.data[0].y) > 0.9].max() == worth.data[0].zmin


def test_learned_limits(waiting: View) -> None:
    below, above = torch.tensor([[0.5, 0.2], [0.5, 0.9]], dtype=torch.float64)
    assert probability(waiting, torch.stack([below, above])) == pytest.approx([1, 0], abs=0.01)
    assert limit_names(waiting) == ["wait"]
    assert binding(waiting, policy_points(waiting, 0.2, 0.8)) == [0, 0]
    figure = plots.feasibility(waiting)
    names = [trace.name for trace in figure.data if trace.name]
    broken = sum(trial.measured["wait"] > 0.5 for trial in waiting.trials)
    assert f"{20 - broken} evaluations with all limits kept" in names
    assert f"{broken} evaluation{'s' * (broken > 1)} with one broken" in names


def test_a_limit_of_integers_binds_where_no_step_is_left() -> None:
    space = conbo.Space(
        actions={"m": conbo.Integer(0, 9), "n": conbo.Integer(0, 9)}, constraints=["2 * m + 2 * n <= 11"]
    )
    seen = learned(space, lambda s, x: x["m"] + x["n"])
    rows = torch.from_numpy(space.encode_actions([{"m": 2, "n": 3}, {"m": 2, "n": 2}]))
    assert binding(seen, rows) == [0, -1]


def test_one_action_alone() -> None:
    space = conbo.Space(actions={"x": conbo.Real(0, 10)}, constraints=["x <= 4"])
    seen = learned(space, lambda s, x: x["x"])
    curve, policy = plots.feasibility(seen).data
    assert np.array_equal(curve.y, (curve.x <= 4).astype(float))
    assert policy.x[0] == pytest.approx(4)
    assert policy.y[0] == 1


def test_the_report_says_what_holds_the_policy_back(shared: View, waiting: View) -> None:
    for seen, limit in ((shared, "a + b <= 1"), (waiting, "wait")):
        (panel,) = limits_panel(seen)
        assert f"The policy is held back by {limit} in " in panel.text
    table = explorer_record(shared)["table"]
    assert table["limits"] == limit_names(shared)
    assert set(table["binding"]) == {-1, 0}
    assert limits_panel(view("one_state")) == ()


def test_the_report_says_where_planes_fix_other_states() -> None:
    space = conbo.Space(
        {"s": conbo.Real(0, 1), "t": conbo.Real(0, 4)}, {"x": conbo.Real(0, 1)}, constraints=["x <= 0.9"]
    )
    study = conbo.Study(space, method="uniform", model=ONE)
    for trial in study.ask(4):
        study.tell(trial, -((float(trial.action["x"]) - float(trial.state["s"])) ** 2))
    texts = {panel.key: panel.text for section in sections(view_of(study), None) for panel in section.panels}
    fixed = "all other actions are at the policy's choice. States that are not shown are in the middle: s 0.5, t 2."
    for key in ("feasibility", "posterior_surface"):
        assert fixed in texts[key]


def test_a_study_without_limits() -> None:
    with pytest.raises(SettingError, match="`feasibility` needs a study with constraints, known or learned, but this"):
        plots.feasibility(view("one_state"))


def test_the_policy_map_speaks_of_a_band_where_there_is_one(shared: View, waiting: View) -> None:
    assert "The band holds" in policy_map_panel(shared).text
    assert policy_map_panel(waiting).text == "The action for every state."
