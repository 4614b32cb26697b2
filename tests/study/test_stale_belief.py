"""A model that was fitted to fewer rewards than there are now never stands in for one that knows them all."""

import threading

from conbo import GaussianProcess, Real, Space, Study
from conbo.models.exact import ExactPosterior
from conbo.observations import Observations

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})
PATIENCE = 60.0  # seconds, so that a failure does not hang


class WaitingModel:
    """Its first fit begins, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def fit(self, space: Space, observations: Observations) -> ExactPosterior:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        return GaussianProcess("matern52", noise="small", input_warping="none").fit(space, observations)


def test_a_reward_that_comes_during_a_fit_is_in_the_next_policy() -> None:
    model = WaitingModel()
    study = Study(SPACE, method="uniform", model=model)
    *first, last = study.ask(6)
    for trial in first:
        study.tell(trial, float(trial.action["x"]) - float(trial.state["s"]) ** 2)
    early: list[int] = []
    thread = threading.Thread(target=lambda: early.append(len(study.policy().belief.observations)))
    thread.start()
    assert model.begun.wait(PATIENCE)
    study.tell(last, 0.3)
    model.may_end.set()
    thread.join(PATIENCE)
    assert early == [5]
    assert len(study.policy().belief.observations) == 6
