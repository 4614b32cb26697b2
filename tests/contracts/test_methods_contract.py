"""What every method of the table promises, in every kind of space."""

import math
from dataclasses import replace

import pytest

from conbo.acquisition.entropy import EntropySearch, MaxValueEntropySearch, PredictiveEntropySearch
from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.quadrature_states import StratifiedStates
from conbo.bound_states import bind
from conbo.method_table import METHODS
from conbo.optimizer import Optimizer
from conbo.proposals import Proposal
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.multi_task_thompson import MultiTaskThompson
from conbo.proposals.posterior_sampling import PosteriorSampling
from conbo.spaces import Categorical, Integer, Point, Real, Space
from conbo.trials import Trial

SPACES = {
    "reals": Space(states={"s": Real(0, 1)}, actions={"x": Real(-2, 3)}),
    "no states": Space(actions={"x": Real(-2, 3), "y": Real(0, 1)}),
    "categorical states": Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(-2, 3)}),
    "mixed": Space(
        states={"s": Real(0.1, 10, log=True), "k": Categorical(["a", "b"]), "m": Integer(1, 4)},
        actions={"x": Real(-2, 3), "n": Integer(1, 8, log=True), "c": Categorical(["u", "v"])},
    ),
    "finite": Space(
        states={"k": Categorical(["a", "b"]), "m": Integer(1, 4)},
        actions={"n": Integer(1, 8, log=True), "c": Categorical(["u", "v"])},
    ),
}
FEW_STATES = StratifiedStates(n_states=4, pool=16)
SMALLER: dict[str, Proposal] = {
    "mts": MultiTaskThompson(points=300),
    "mts-pathwise": MultiTaskThompson(points=600, draw="pathwise"),
    "ps-bax": PosteriorSampling(states=16, climb=5),
    "conbo-es": Maximizer(ConBO(EntropySearch(peaks=6, draws=128), FEW_STATES)),
    "conbo-pes": Maximizer(ConBO(PredictiveEntropySearch(peaks=6, draws=128), FEW_STATES)),
    "conbo-mes": Maximizer(ConBO(MaxValueEntropySearch(peaks=6, draws=128), FEW_STATES)),
}


def less_thorough(proposal: Proposal) -> Proposal:
    """A proposal that searches in the same way, but for fewer points: what is promised here does not depend on them."""
    if not isinstance(proposal, Maximizer):
        return proposal
    return replace(proposal, screened=32, starts=6, iterations=5, finalists=2)


QUICK = {
    name: replace(method, proposal=less_thorough(SMALLER.get(name, method.proposal)))
    for name, method in METHODS.items()
}
PAIRS = [
    (name, kind)
    for name, method in QUICK.items()
    for kind, space in SPACES.items()
    if (not method.needs_finite_states or bind(None, space).finite() is not None)
    and (kind == "finite") == method.needs_finite_actions
]
pytestmark = pytest.mark.parametrize(("name", "kind"), PAIRS)


def reward(trial: Trial) -> float:
    """Something wavy in all that is a number, with a step for categories."""
    values = {**trial.state, **trial.action}.values()
    return sum(math.sin(3 * v) if isinstance(v, int | float) else len(v) * ord(v[0]) % 3 for v in values)


def started(name: str, kind: str, trials: int = 4, seed: int = 0) -> Optimizer:
    """After some trials, of which the first four are the initial design."""
    optimizer = Optimizer(SPACES[kind], method=QUICK[name], seed=seed, initial=4)
    for _ in range(trials):
        (trial,) = optimizer.ask()
        optimizer.tell(trial, reward(trial))
    return optimizer


def assert_valid(space: Space, trials: list[Trial]) -> None:
    for trial in trials:
        assert space.validate_state(trial.state) == trial.state
        assert space.validate_action(trial.action) == trial.action


def a_state(space: Space) -> Point:
    values: Point = {"s": 0.7, "k": "b", "m": 3}
    return {name: values[name] for name in space.states}


def test_a_dictated_state_is_kept(name: str, kind: str) -> None:
    state = a_state(SPACES[kind])
    trials = started(name, kind).ask(2, state=state)
    assert_valid(SPACES[kind], trials)
    assert [trial.state for trial in trials] == [state] * 2


def test_suggestions_are_valid_distinct_and_the_same_with_the_same_seed(name: str, kind: str) -> None:
    one, same, other = started(name, kind), started(name, kind), started(name, kind, 2, seed=1)
    trials = one.ask(3)
    assert_valid(SPACES[kind], trials)
    assert len({str((trial.state, trial.action)) for trial in trials}) == 3
    assert same.ask(3) == trials
    assert one.trials[:2] != other.trials


def test_awaited_rewards_are_no_obstacle(name: str, kind: str) -> None:
    optimizer = started(name, kind)
    waiting = [optimizer.ask()[0] for _ in range(2)]
    assert_valid(SPACES[kind], waiting)
    optimizer.fail(waiting[0], "lost")
    optimizer.tell(waiting[1], reward(waiting[1]))
    assert_valid(SPACES[kind], optimizer.ask())


@pytest.mark.filterwarnings("ignore::conbo.policies.interaction.NoInteractionWarning")
def test_one_observation_is_enough(name: str, kind: str) -> None:
    optimizer = Optimizer(SPACES[kind], method=QUICK[name], initial=1)
    (first,) = optimizer.ask()
    optimizer.tell(first, 1.0)
    assert_valid(SPACES[kind], optimizer.ask(2))
    assert optimizer.space.validate_action(optimizer.policy()(first.state))


def test_rewards_that_are_all_the_same_are_no_obstacle(name: str, kind: str) -> None:
    optimizer = Optimizer(SPACES[kind], method=QUICK[name], initial=4)
    for trial in optimizer.ask(4):
        optimizer.tell(trial, 2.0)
    assert_valid(SPACES[kind], optimizer.ask())
