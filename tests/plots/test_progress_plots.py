"""How a study went."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import torch

import conbo
from conbo import plots
from conbo.models.exact import ExactPosterior
from conbo.plots import progress
from conbo.plots.progress import checkpoints, earlier
from conbo.plots.view import View, view_of
from conbo.policies.gp_argmax import GpArgmax
from conbo.trials import Trial
from learned_studies import view, wards


def test_checkpoints() -> None:
    assert checkpoints(1) == [1]
    assert checkpoints(5) == [3, 4, 5]
    many = checkpoints(200)
    assert many[0] == 3
    assert many[-1] == 200
    assert len(many) == 8
    assert many == sorted(set(many))


def test_the_value_is_what_the_study_would_have_said() -> None:
    whole = plots.policy_value(view("wards"))
    counts, values = next((t.x, t.y) for t in whole.data if t.name == "policy value, as estimated then")
    assert values[-1] == pytest.approx(wards().policy_value(), rel=1e-3)
    for place in (1, 5):
        stopped = wards(n=int(counts[place]))
        assert values[place] == pytest.approx(stopped.policy_value(), rel=1e-3)


def test_hindsight_judges_earlier_policies_by_the_last_model() -> None:
    figure = plots.policy_value(view("wards"))
    then, hindsight = (t.y for t in figure.data[2:])
    assert hindsight[-1] == then[-1]
    assert (hindsight <= then[-1] + 1e-6).all()  # by the last model no policy is better than its own


def test_long_studies_keep_their_hyperparameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOST_FITTED", 10)
    seen = view("one_state")
    now, before = seen.belief.posterior, earlier(seen.belief, 20, seen.model).posterior
    assert isinstance(now, ExactPosterior)
    assert isinstance(before, ExactPosterior)
    assert before.kernel is now.kernel
    assert before.n_observations == 20
    assert earlier(seen.belief, 8, seen.model).posterior.kernel is not now.kernel  # type: ignore[union-attr]
    points = seen.points[:3]
    assert not torch.allclose(before.mean(points), now.mean(points))


def test_earlier_policies_respect_learned_constraints() -> None:
    space = conbo.Space(actions={"x": conbo.Real(0, 1)})
    study = conbo.Study(space, method="uniform", outcome_constraints={"wait": conbo.AtMost(0.5)}, seed=3)
    study.run(lambda _, action: {"reward": action["x"], "wait": action["x"]}, 12, progress=False)
    seen = view_of(study)
    learned = seen.belief.constraints
    assert learned is not None
    for n in (6, 9):
        belief = earlier(seen.belief, n, seen.model)
        action = GpArgmax().build(belief, torch.Generator().manual_seed(0))(torch.zeros(1, 0, dtype=torch.float64))
        assert float(learned.probability(action)) >= learned.confidence - 1e-6
    values = next(t.y for t in plots.policy_value(study).data if t.name == "policy value, as estimated then")
    assert max(values) < 0.6  # 1 without the constraint


def timed(*trials: tuple[str, float, float | None, str]) -> View:
    """A view of trials given as worker, start, end and status."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    seen = view_of(view("one_action"))
    records = []
    for number, (worker, start, end, status) in enumerate(trials):
        finished = None if end is None else began + timedelta(seconds=end)
        trial = Trial(number, {}, {"x": 0.5}, status=status)  # type: ignore[arg-type]
        started = began + timedelta(seconds=start)
        records.append(replace(trial, worker=worker, started=started, finished=finished))
    return replace(seen, trials=tuple(records))


def test_a_worker_has_a_row_and_a_lane_for_what_overlaps() -> None:
    seen = timed(
        ("a", 0, 60, "completed"), ("a", 60, 120, "completed"), ("b", 0, 100, "completed"), ("b", 50, 110, "failed"),
        ("b", 115, None, "running"),
    )  # fmt: skip
    figure = plots.timeline(seen)
    assert list(figure.layout.yaxis.ticktext) == ["a", "b"]
    assert figure.layout.xaxis.title.text == "seconds since the first start"
    done, failed, running = figure.data
    assert [t.name for t in figure.data] == ["completed: 3", "failed: 1", "running: 1"]
    assert list(done.base) == [0, 60, 0]
    assert list(done.x) == [60, 60, 100]
    assert done.y[0] == done.y[1] == 0  # one after the other
    assert done.y[2] < failed.y[0]  # at the same time
    assert running.y[0] == done.y[2]
    assert running.base[0] + running.x[0] == 120  # up to what was recorded last


def test_asks_of_one_process_share_a_row_and_many_processes_that_of_their_machine() -> None:
    few = [(f"lab:{pid}:5f.12.{k}a", 10 * k, 10 * k + 9, "completed") for k in range(8) for pid in (7, 8)]
    clients = [(f"robot/{k}", 10 * k, 10 * k + 9, "completed") for k in range(8)]
    assert list(plots.timeline(timed(*few, *clients)).layout.yaxis.ticktext) == ["lab:7", "lab:8", "robot"]
    many = [(f"lab:{k}:5f.12.{k}a", 10 * k, 10 * k + 9, "completed") for k in range(30)]
    assert list(plots.timeline(timed(*many)).layout.yaxis.ticktext) == ["lab"]


@pytest.mark.parametrize(("seconds", "unit"), [(60, "seconds"), (600, "minutes"), (36_000, "hours"), (864_000, "days")])
def test_units_of_time(seconds: float, unit: str) -> None:
    figure = plots.timeline(timed(("a", 0, seconds, "completed")))
    assert figure.layout.xaxis.title.text == f"{unit} since the first start"
    assert 1 < figure.data[0].x[0] <= 200


def test_imported_results_are_shown_by_number() -> None:
    figure = plots.timeline(timed(("a", 5, 5, "completed"), ("a", 5, 5, "completed")))
    assert figure.layout.xaxis.title.text == "trial"


def test_without_times_trials_are_shown_by_number() -> None:
    seen = view("mixed")
    untimed = replace(seen, trials=tuple(replace(t, started=None, finished=None) for t in seen.trials))
    done, failed = plots.timeline(untimed).data
    assert failed.name == "failed: 6"
    assert list(failed.x) == [t.number for t in seen.trials if t.status == "failed"]
    assert "no &lt;b&gt;convergence&lt;/b&gt;" in failed.text[0]
    assert np.unique(done.y).tolist() == [0]
