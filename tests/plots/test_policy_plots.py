"""Plots of the policy show what the policy says."""

import numpy as np
import pytest
from plotly import graph_objects as go

from conbo import plots
from conbo.errors import SettingError
from conbo.problems import branin
from conbo.spaces import Integer, Real, Space
from conbo.study import Study
from learned_studies import view


def trace(figure: go.Figure, name: str) -> go.Scatter:
    (found,) = (t for t in figure.data if t.name == name)
    return found


def test_the_map_has_the_actions_of_the_policy() -> None:
    seen = view("one_state")
    shown = trace(plots.policy_map(seen), "policy")
    wanted = [action["stock"] for action in seen.policy.many([{"demand": float(x)} for x in shown.x])]
    assert shown.y == pytest.approx(wanted, abs=1e-3)
    band = trace(plots.policy_map(seen), "best action of 80 % of drawn functions")
    half = len(shown.x)
    high, low = band.y[:half], band.y[half:][::-1]
    assert (low <= high).all()
    assert ((low - 1 <= shown.y) & (shown.y <= high + 1)).mean() > 0.8  # the best action is among the likely ones


def test_other_states_are_where_they_were_put() -> None:
    seen = view("mixed")
    at = {"weather": "rain", "dull": 3}
    shown = trace(plots.policy_map(seen, "load", ["power"], at=at), "policy")
    states = [{"load": float(x), **at} for x in shown.x]
    assert shown.y == pytest.approx([a["power"] for a in seen.policy.many(states)], abs=2e-3)


@pytest.mark.filterwarnings("ignore::conbo.bound_states.InfeasibleStatesWarning")
def test_states_without_a_feasible_action_have_no_policy() -> None:
    space = Space({"week": Integer(1, 10)}, {"workers": Integer(0, 20)}, constraints=["workers >= 3 * week - 4"])
    study = Study(space, method="uniform")
    study.run(lambda state, action: -((action["workers"] - state["week"]) ** 2), 8, progress=False)
    for figure in (plots.policy_map(study), plots.predicted_reward(study), plots.posterior_surface(study)):
        assert trace(figure, "policy").x.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]  # 23 workers are needed in the 9th
    assert "over week" in study.policy()._repr_html_()


@pytest.mark.filterwarnings("ignore::conbo.bound_states.InfeasibleStatesWarning")
def test_where_few_states_have_an_action_typical_ones_are_drawn() -> None:
    limits = ["x <= 1000 * s - 505", "x <= 520 - 1000 * s"]  # so s must be between 0.505 and 0.52
    space = Space({"s": Real(0, 1)}, {"x": Real(0, 1)}, constraints=limits)
    study = Study(space, method="uniform")
    study.run(lambda state, action: -((action["x"] - state["s"]) ** 2), 8, progress=False)
    for figure in (plots.policy_map(study), plots.predicted_reward(study)):
        x = trace(figure, "policy").x
        assert len(x) > 5
        assert 0.505 <= x.min() < x.max() <= 0.52
    assert "expected reward" in study.policy()._repr_html_()


@pytest.mark.filterwarnings("ignore::conbo.bound_states.InfeasibleStatesWarning")
def test_nothing_is_drawn_where_no_state_has_an_action() -> None:
    space = Space({"s": Real(0, 1), "t": Real(0, 1)}, {"x": Real(0, 1)}, constraints=["x >= 2 * t"])
    study = Study(space, method="uniform")
    study.run(lambda state, action: action["x"], 8, progress=False)
    with pytest.raises(SettingError, match="a state along 's' must have a feasible action, but none has with"):
        plots.policy_map(study, "s", at={"t": 0.8})


def test_choices_of_an_action_are_numbered() -> None:
    seen = view("wards")
    shown = trace(plots.policy_map(seen, actions=["drug"]), "policy")
    best = [action["drug"] for action in seen.policy.many([{"ward": ward} for ward in "ABCD"])]
    assert shown.y.tolist() == ["pq".index(str(drug)) for drug in best]
    sizes = next(t for t in plots.policy_map(seen, actions=["drug"]).data if t.name != "policy")
    shares = np.zeros(4)
    np.add.at(shares, sizes.x.astype(int), (np.asarray(sizes.marker.size) - 4) / 18)
    assert shares == pytest.approx(np.ones(4))  # every draw has one best choice in every state


def test_without_states_the_map_is_a_distribution() -> None:
    figure = plots.policy_map(view("no_state"), actions=["x"])
    assert trace(figure, "policy").x[0] == pytest.approx(view("no_state").policy()["x"])
    steps = trace(figure, "how often the best, by drawn functions")
    heights = np.asarray(steps.y)[1 : len(steps.y) // 2 : 4]
    assert heights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["one_state", "wards"])
def test_predicted_rewards(kind: str) -> None:
    seen = view(kind)
    figure = plots.predicted_reward(seen)
    name = next(iter(seen.space.states))
    shown = next(t for t in figure.data if t.name.startswith("policy"))
    states = [{name: "ABCD"[int(x)] if kind == "wards" else float(x)} for x in shown.x]
    predictions = seen.policy.predict_many(states)
    assert shown.y == pytest.approx([p.mean for p in predictions], rel=1e-6)
    std = np.array([p.std for p in predictions])
    if kind == "wards":
        assert shown.error_y.array == pytest.approx(1.96 * std)
    else:
        band = trace(figure, "± 1.96 sd of the mean")
        assert band.y[: len(std)] == pytest.approx(shown.y + 1.96 * std)


def test_the_truth_is_drawn_where_it_is_known() -> None:
    problem = branin()
    study = Study(problem.space, method="uniform", state_distribution=problem.state_distribution)
    generator = np.random.default_rng(0)
    study.run(lambda s, x: problem.evaluate(s, x, generator), 10, progress=False)
    assert problem.optimal_reward is not None
    assert problem.optimal_action is not None
    best = trace(plots.predicted_reward(study, problem=problem), "best possible")
    assert best.y == pytest.approx([problem.optimal_reward({"s": float(s)}) for s in best.x])
    policy = trace(plots.posterior_surface(study, problem=problem), "true policy")
    assert policy.y == pytest.approx([problem.optimal_action({"s": float(s)})["x"] for s in policy.x])
