"""Surfaces, slices and importance show what the model says."""

import numpy as np
import pytest

from conbo import plots
from learned_studies import view


def test_the_surface_is_the_posterior_mean() -> None:
    seen = view("one_state")
    surface = plots.posterior_surface(seen).data[0]
    corners = [(0, 0), (0, -1), (30, 17), (-1, -1)]
    states = [{"demand": float(surface.x[j])} for _, j in corners]
    actions = [{"stock": float(surface.y[i])} for i, _ in corners]
    wanted = [p.mean for p in seen.policy.predict_actions(states, actions)]
    assert [surface.customdata[i, j] for i, j in corners] == pytest.approx(wanted)
    order = np.asarray(surface.customdata).ravel().argsort()
    assert (np.diff(np.asarray(surface.z).ravel()[order]) >= 0).all()  # colors follow values


def test_other_parameters_follow_the_policy() -> None:
    seen = view("mixed")
    surface = plots.posterior_surface(seen, "load", "power", at={"weather": "rain"}).data[0]
    j = 40
    state = {"load": float(surface.x[j]), "weather": "rain", "dull": 5}
    action = {**seen.policy(state), "power": float(surface.y[9])}
    (wanted,) = seen.policy.predict_actions([state], [action])
    assert surface.customdata[9, j] == pytest.approx(wanted.mean, abs=1e-3)


def test_bright_is_good() -> None:
    bright = plots.posterior_surface(view("one_state")).data[0].colorscale[-1][1]
    assert plots.posterior_surface(view("mixed")).data[0].colorscale[0][1] == bright  # rewards are minimized


def test_a_slice_passes_through_the_policy() -> None:
    seen = view("one_state")
    figure = plots.slices(seen, at={"demand": 40})
    prediction = seen.policy.predict({"demand": 40.0})
    points = [trace for trace in figure.data if trace.name == "policy"]
    assert [float(p.x[0]) for p in points] == pytest.approx([40.0, prediction.action["stock"]])
    assert [float(p.y[0]) for p in points] == pytest.approx([prediction.mean] * 2)
    curve = figure.data[1]
    (at_end,) = seen.policy.predict_actions([{"demand": 100.0}], [prediction.action])
    assert curve.y[-1] == pytest.approx(at_end.mean)


def test_what_does_nothing_does_not_matter() -> None:
    loss = view("mixed").given_away
    assert set(loss) == {"load", "weather", "dull", "power", "rate", "mode", "idle"}
    assert min(loss.values()) >= 0
    assert loss["dull"] < 0.1 * loss["load"]
    assert loss["idle"] < 0.1 * min(loss[name] for name in ("power", "rate"))
    figure = plots.importance(view("mixed"))
    shown = {name: value for trace in figure.data for name, value in zip(names(figure, trace.y), trace.x, strict=True)}
    assert shown == pytest.approx(loss)


def names(figure: object, places: object) -> list[str]:
    ticks = figure.layout.yaxis.ticktext  # type: ignore[attr-defined]
    return [ticks[int(place)] for place in places]  # type: ignore[attr-defined]


def test_losses_are_what_the_truth_says() -> None:
    """power - best is squared and both are spread over [0, 1]: to guess power costs about 10 E[(u - best)²]."""
    load = np.asarray(view("mixed").typical_states[0][:, 0])
    expected = 10 * (1 / 3 - load + load**2).mean()
    assert view("mixed").given_away["power"] == pytest.approx(expected, rel=0.25)
