"""Calibration and coverage."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conbo import plots
from conbo.errors import SettingError
from conbo.models.exact import ExactPosterior, condition
from conbo.plots import model_checks
from conbo.plots.model_checks import covered
from conbo.spaces import Integer, Real, Space
from conbo.study import Study
from conbo.validation import Check, Measurement, Validation
from learned_studies import view


@pytest.mark.parametrize("kind", ["one_state", "mixed", "wards"])
def test_leave_one_out_is_leaving_one_out(kind: str) -> None:
    seen = view(kind)
    belief, posterior = seen.belief, seen.belief.posterior
    assert isinstance(posterior, ExactPosterior)
    mean, std = seen.leave_one_out
    rewards = (belief.observations.rewards - belief.shift) / belief.scale
    for i in (0, 7, 15):
        rest = torch.arange(len(rewards)) != i
        others = condition(posterior.kernel, posterior.constant, posterior.noise, seen.points[rest], rewards[rest])
        wanted = belief.to_reward(others.mean(seen.points[i : i + 1])) * seen.sign
        spread = (others.variance(seen.points[i : i + 1]) + posterior.noise).sqrt() * belief.scale
        assert mean[i] == pytest.approx(float(wanted), rel=1e-4, abs=1e-4)
        assert std[i] == pytest.approx(float(spread), rel=1e-4)


def test_calibration_counts() -> None:
    seen = view("wards")
    figure = plots.calibration(seen)
    inside = covered(seen)
    assert 0.7 < inside.mean() <= 1
    assert figure.data[1].name == f"inside its 95 % interval: {inside.sum()}"
    assert figure.data[1].x == pytest.approx(seen.rewards[inside])
    assert figure.data[1].error_y.array == pytest.approx(1.96 * seen.leave_one_out[1][inside])


def test_coverage_adds_up_and_follows_the_distribution() -> None:
    seen = view("mixed")
    figure = plots.state_coverage(seen)
    assert len(figure.data) == 2 * len(seen.space.states)
    for bars, expected in zip(figure.data[::2], figure.data[1::2], strict=True):
        heights = np.asarray(bars.y)[1 : len(bars.y) // 2 : 4]
        assert heights.sum() == pytest.approx(1.0)
        assert np.sum(expected.y) == pytest.approx(1.0)
    weather = figure.data[3]
    assert weather.y == pytest.approx([0.75, 0.25], abs=0.01)
    observed = np.asarray(figure.data[2].y)[1:8:4]
    rain = sum(t.state["weather"] == "rain" for t in seen.trials if t.status == "completed")
    assert observed[1] == pytest.approx(rain / len(seen.points))


@pytest.mark.parametrize(
    ("parameter", "shares"),
    [
        (Integer(1, 20), [0.1] * 10),  # two values in each
        (Integer(1, 30), [0.1] * 10),
        (Integer(1, 13), [2 / 13] * 6 + [1 / 13]),
        (Integer(1, 300, log=True), None),
    ],
)
def test_bins_of_integers_hold_whole_values(parameter: Integer, shares: list[float] | None) -> None:
    study = Study(Space({"b": parameter}, {"x": Real(0, 1)}), method="uniform")
    study.run(lambda state, action: action["x"], 6, progress=False)
    expected = next(trace for trace in plots.state_coverage(study).data if trace.name == "P[s]")
    if shares is not None:
        assert expected.y == pytest.approx(shares, abs=2e-3)
    assert min(expected.y) > 0.05  # none is empty
    assert np.sum(expected.y) == pytest.approx(1.0)
    assert (np.diff(expected.x) > 0).all()


def test_without_states_the_actions_are_covered() -> None:
    with pytest.raises(SettingError, match=r"`names` must be of .*, but got 'demand'"):
        plots.state_coverage(view("no_state"), ["demand"])
    figure = plots.state_coverage(view("no_state"))
    titles = [figure.layout[f"xaxis{i}"].title.text for i in ("", 2, 3)]
    assert titles == ["action x", "action rate", "action kind"]


def test_fresh_rewards_stand_against_what_was_expected() -> None:
    policy = [Measurement({"x": 1.0}, 3.0, 2.5), Measurement({"x": 1.0}, 4.0, None, "failed")]
    states = [Check({"s": float(i)}, 0, 0.5, own, Measurement({"x": 0.0}, 1.0, 1.5)) for i, own in enumerate(policy)]
    found = Validation(9, True, tuple(states), "today", False, None, (3.0, 1.0), (0.0, 0.0, 0.0))
    expected, ours, theirs = model_checks.fresh_evaluations(found).data
    assert list(expected.x) == list(expected.y) == [1.0, 3.0]
    assert (list(ours.x), list(ours.y), ours.name) == ([3.0], [2.5], "policy")
    assert (list(theirs.x), list(theirs.y), theirs.name) == ([1.0, 1.0], [1.5, 1.5], "today")
    named = replace(found, rule_name="stock <b> at $5 or $6")  # neither markup nor math
    assert model_checks.fresh_evaluations(named).data[2].name == "stock &lt;b&gt; at &#36;5 or &#36;6"
