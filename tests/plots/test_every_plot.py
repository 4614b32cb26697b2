"""What holds for all plots and all spaces: figures of finite numbers that can be saved."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plotly import graph_objects as go

from conbo import plots
from conbo.errors import ConboError, SettingError
from conbo.models.botorch_model import ModelFactory
from conbo.plots.axes import ParameterAxis
from conbo.plots.style import evenly, with_count
from conbo.plots.view import view_of
from conbo.spaces import Categorical, Integer, Real, Space, Value
from conbo.study import Study
from learned_studies import STUDIES, learned, one_action, one_state, view

PLOTS = [name for name in plots.__all__ if name not in ("save", "feasibility")]  # which needs limits


def draw(name: str) -> Callable[..., go.Figure]:
    function: Callable[..., go.Figure] = getattr(plots, name)
    return function


@pytest.mark.parametrize("kind", STUDIES)
@pytest.mark.parametrize("name", PLOTS)
def test_a_figure_of_finite_numbers(name: str, kind: str, tmp_path: Path) -> None:
    figure = draw(name)(view(kind))
    assert isinstance(figure, go.Figure)
    assert figure.data
    for trace in figure.data:
        assert len(trace.x) > 0
        for part in (trace.x, trace.y, trace.z if trace.type in ("contour", "heatmap") else None):
            numbers = np.asarray([] if part is None else part, dtype=float)
            assert np.isfinite(numbers).all() or trace.hoverinfo == "skip"  # a gap between bars is no number
    plots.save(figure, tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_a_study_is_as_good_as_a_view() -> None:
    study = one_action()
    assert plots.slices(study) == plots.slices(view_of(study))


def test_close_values_and_large_rewards_are_shown_as_different_numbers() -> None:
    narrow = Real(1000.0001, 1000.0009)
    study = learned(
        Space(states={"s": narrow}, actions={"x": narrow}),
        lambda state, action: 1234567 + 1e4 * (float(action["x"]) - 1000) - 1e7 * (float(state["s"]) - 1000.0005) ** 2,
        12,
    )
    seen = view_of(study)
    labels = [[line.split()[1] for line in text.split("<br>")] for text in seen.texts]
    for shown, real in zip(labels, [[t.state["s"], t.action["x"], t.reward] for t in study.trials], strict=True):
        assert [float(text) for text in shown] == pytest.approx(real, rel=1e-10)
    assert len(set(plots.policy_map(seen).data[-1].text)) > 20  # of 1e-4 of the range, which is 8e-8
    assert len(set(plots.slices(seen).data[1].text)) > 20
    ticks = plots.posterior_surface(seen).data[0].colorbar.ticktext
    assert len(set(ticks)) == len(ticks)
    assert "x (1000.0001 to 1000.0009) over s (1000.0001 to 1000.0009)" in study.policy()._repr_html_()


def test_large_rewards_in_a_table_of_the_policy_are_different_numbers() -> None:
    space = Space(states={"s": Categorical([1, 2, 3])}, actions={"x": Real(0, 1)})

    def reward(state: dict[str, Value], action: dict[str, Value]) -> float:
        return 1234560 + float(state["s"]) - 9 * (float(action["x"]) - 0.3 * float(state["s"])) ** 2

    policy = learned(space, reward, 15).policy()
    means = [policy.predict({"s": s}).mean for s in (1, 2, 3)]
    cells = re.findall(r"<td>(1234\d+\.?\d*)</td>", policy._repr_html_())
    assert list(map(float, cells)) == pytest.approx(means, rel=0, abs=1e-4 * (max(means) - min(means)))


def test_names_and_choices_are_shown_as_they_are(tmp_path: Path) -> None:
    figure = plots.policy_map(view("mixed"), actions=["mode"])
    assert list(figure.layout.yaxis.ticktext) == ["fast", "slow &amp;<br>&lt;i&gt;steady&lt;/i&gt;", "&#36;off&#36;"]
    plots.save(figure, tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "&lt;i&gt;steady&lt;/i&gt;" in drawn  # XML's own way to write it
    assert ">$off$<" in drawn


def test_long_choices_fill_two_lines_and_integers_have_no_halves() -> None:
    long = Categorical(["Supercalifragilisticexpialidocious", "Gebrüder Oberhuber Nachfolger", "Acme"])
    ticks = ParameterAxis("state", "firm", long).layout()["ticktext"]
    assert ticks == ["Supercalifragili<br>sticexpialidoci…", "Gebrüder<br>Oberhuber…", "Acme"]
    few, some, many = (ParameterAxis("state", "n", Integer(1, high)).layout() for high in (3, 9, 40))
    assert few["tickvals"] == [1, 2, 3]
    assert some["tickvals"] == [1, 3, 5, 7, 9]
    assert "tickvals" not in many


@pytest.mark.parametrize(
    "name", ["policy_map", "predicted_reward", "posterior_surface", "remaining_gain", "acquisition"]
)
def test_unknown_states(name: str) -> None:
    with pytest.raises(SettingError, match="unknown state 'lod': did you mean 'load'"):
        draw(name)(view("mixed"), "lod")
    with pytest.raises(SettingError, match="unknown state 'lod': did you mean 'load'"):
        draw(name)(view("mixed"), at={"lod": 3})
    with pytest.raises(ConboError, match=r"`1.0 <= load <= 1000.0` must hold, but got load=3000"):
        draw(name)(view("mixed"), at={"load": 3000})


@pytest.mark.parametrize(
    "name", ["policy_map", "predicted_reward", "posterior_surface", "remaining_gain", "acquisition", "feasibility"]
)
def test_in_a_space_without_states_every_state_is_unknown(name: str) -> None:
    study = Study(Space(actions={"x": Real(0, 1)}, constraints=["x <= 0.9"]), method="uniform")
    for trial in study.ask(2):
        study.tell(trial, float(trial.action["x"]))
    seen = view_of(study)
    with pytest.raises(SettingError, match="unknown state 'load': there are none"):
        draw(name)(seen, "load")
    with pytest.raises(SettingError, match="unknown state 'load': there are none"):
        draw(name)(seen, at={"load": 3})


def test_unknown_actions() -> None:
    with pytest.raises(SettingError, match="unknown action 'powr': did you mean 'power'"):
        plots.policy_map(view("mixed"), actions=["powr"])
    with pytest.raises(SettingError, match="unknown action 'powr': did you mean 'power'"):
        plots.posterior_surface(view("mixed"), action="powr")
    with pytest.raises(SettingError, match="unknown action 'powr': did you mean 'power'"):
        plots.slices(view("mixed"), ["powr"])


def test_nothing_to_see() -> None:
    with pytest.raises(ConboError, match="a policy needs at least one completed trial"):
        plots.policy_map(Study(Space(actions={"x": Real(0, 1)})))
    with pytest.raises(SettingError, match="`study` must be a Study, but got 3"):
        plots.policy_map(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PLOTS)
def test_two_rewards_are_enough(name: str) -> None:
    space = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})
    study = Study(space, method="uniform")
    for trial in study.ask(2):
        study.tell(trial, float(trial.action["x"]))
    assert draw(name)(study).data


def botorch_model() -> ModelFactory:
    from botorch.models import SingleTaskGP

    return lambda points, rewards, noise: SingleTaskGP(points, rewards, noise, outcome_transform=None)


@pytest.mark.slow
def test_a_botorch_model_has_all_plots_but_calibration() -> None:
    look = view_of(one_state(model=botorch_model()))
    for name in PLOTS:
        if name != "calibration":
            assert draw(name)(look).data
    with pytest.raises(SettingError, match="leave-one-out predictions need a built-in model"):
        plots.calibration(look)


def test_a_policy_that_is_not_the_models_best_action() -> None:
    study = one_state(method="knn")
    names = [trace.name for trace in plots.policy_map(study).data]
    assert names == ["policy"]  # of drawn functions nothing follows for it


def test_of_very_many_evaluations_a_part_is_drawn() -> None:
    seen = replace(view("one_state"))
    n = len(seen.points)
    vars(seen)["drawn"] = evenly(n, 7)
    assert evenly(n, 7)[[0, -1]].tolist() == [0, n - 1]
    for name in ("predicted_reward", "posterior_surface", "acquisition", "policy_value"):
        (part,) = [trace for trace in draw(name)(seen).data if trace.name and f"(7 of {n} drawn)" in trace.name]
        assert len(part.x) == len(part.y) == 7
    checked = [trace for trace in draw("calibration")(seen).data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in checked) == 7
    assert [with_count("all", *pair) for pair in ((3, 3), (2, 3))] == ["all", "all (2 of 3 drawn)"]
