"""π(s) = argmax of the posterior mean, and the memory that makes many states cheap."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import conbo.policies.gp_argmax
import conbo.policies.policy_cache
from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.models.exact import ExactSearch
from conbo.models.posterior import BestActions
from conbo.observations import Observations
from conbo.policies.gp_argmax import ArgmaxPolicy, GpArgmax
from conbo.quasi_random import sobol
from conbo.spaces import Categorical, Integer, Parameter, Real, Space

SPACES = {
    "real": Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)}),
    "stateless": Space(actions={"x": Real(0, 1), "y": Real(0, 1)}),
    "mixed": Space(
        states={"s": Real(0, 1), "k": Categorical(["a", "b"])},
        actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical(["u", "v", "w"])},
    ),
    "categorical states": Space(states={"k": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1)}),
    "many states": Space(states={f"s{i}": Real(0, 1) for i in range(6)}, actions={"x": Real(0, 1)}),
}

MODEL = GaussianProcess()


def belief_over(space: Space, n: int = 40, model: GaussianProcess = MODEL) -> Belief:
    """A wavy function of everything, with more than one local maximum over the actions."""
    d = space.n_state_dims + space.n_action_dims
    points = torch.from_numpy(space.snap(sobol(n, d, seed=1).numpy()))
    angles = 2.5 * points @ torch.linspace(1, 2, d, dtype=torch.float64)
    rewards = torch.sin(2 * angles) + 0.3 * points[:, -1] * angles
    return fit_belief(space, bind(None, space), Observations(points, rewards, points[:0]), model)


def built(belief: Belief, **settings: Any) -> ArgmaxPolicy:
    return GpArgmax(**settings).build(belief, torch.Generator().manual_seed(0))


def some_states(belief: Belief, n: int, seed: int = 5) -> Tensor:
    d_s = belief.n_state_dims
    return torch.from_numpy(belief.space.snap_states(sobol(n, d_s, seed).numpy() if d_s else np.empty((n, 0))))


def values(belief: Belief, states: Tensor, actions: Tensor) -> Tensor:
    return belief.posterior.mean(torch.cat([states, actions], -1))


def axis(parameter: Parameter) -> Tensor:
    if isinstance(parameter, Real):
        return torch.linspace(0, 1, 201, dtype=torch.float64)
    return torch.from_numpy(parameter.levels())


# integers are rounded after the climb, and the reals beside them stay where they are
@pytest.mark.parametrize(("name", "tolerance"), [("real", 1e-6), ("categorical states", 1e-6), ("mixed", 5e-3)])
def test_no_action_of_a_fine_grid_is_better(name: str, tolerance: float) -> None:
    belief = belief_over(SPACES[name])
    states = some_states(belief, 12)
    found = values(belief, states, built(belief)(states))
    axes = [axis(parameter) for parameter in belief.space.actions.values()]
    grid = torch.cartesian_prod(*axes).reshape(-1, len(axes))
    for state, value in zip(states, found, strict=True):
        best = values(belief, state.expand(len(grid), -1), grid).max()
        assert value >= best - tolerance


@pytest.mark.parametrize("name", SPACES)
def test_actions_are_valid(name: str) -> None:
    belief = belief_over(SPACES[name])
    actions = built(belief)(some_states(belief, 7))
    assert actions.shape == (7, belief.space.n_action_dims)
    assert torch.equal(actions, belief.snap_actions(actions))


@pytest.mark.parametrize("name", SPACES)
def test_many_states_at_once_are_as_good_as_one_by_one(name: str) -> None:
    belief = belief_over(SPACES[name])
    states = some_states(belief, 300)
    together = built(belief)(states)
    alone = torch.cat([built(belief)(state[None]) for state in states[::30]])
    difference = values(belief, states, together)[::30] - values(belief, states[::30], alone)
    assert difference.abs().max() < 1e-4


def test_a_state_asked_again_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    belief = belief_over(SPACES["real"])
    policy = built(belief)
    states = some_states(belief, 50)
    first = policy(states)
    with monkeypatch.context() as patch:
        patch.setattr(ExactSearch, "best", None)
        assert torch.equal(policy(states.flip(0)), first.flip(0))
    policy.wipe_cache()
    searches = counted_searches(monkeypatch)
    assert torch.equal(policy(states), first)
    assert searches


def test_a_similar_state_is_climbed_to_from_remembered_actions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    belief = belief_over(SPACES["real"], model=GaussianProcess(members=1))  # every member of an average would search
    policy = built(belief)
    searches = counted_searches(monkeypatch)
    policy(torch.tensor([[0.5]], dtype=torch.float64))
    policy(torch.tensor([[0.5001]], dtype=torch.float64))
    policy(torch.tensor([[0.9]], dtype=torch.float64))
    assert searches == [(1, 4), (1, 1), (1, 4)]


def test_repeated_states_of_a_table_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = built(belief_over(SPACES["categorical states"]))
    searches = counted_searches(monkeypatch)
    states = torch.tensor([[1 / 6], [5 / 6]], dtype=torch.float64).repeat(100, 1)
    actions = policy(states)
    assert sum(n for n, _ in searches) == 2
    assert torch.equal(actions, actions[:2].repeat(100, 1))


def counted_searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(states, starts) of every search that is made from now on."""
    searches: list[tuple[int, int]] = []

    search = ExactSearch.best

    def counting(self: ExactSearch, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        searches.append((len(states), starts))
        return search(self, states, starts, steps)

    monkeypatch.setattr(ExactSearch, "best", counting)
    return searches


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conbo.policies.gp_argmax, "MOST_SEARCHED", 8)
    monkeypatch.setattr(conbo.policies.policy_cache, "MOST_ANSWERS", 30)
    belief = belief_over(SPACES["many states"])
    policy = built(belief, similar=1.0)
    for seed in range(3):
        states = some_states(belief, 40, seed)
        assert policy(states).shape == (40, 1)
        assert len(policy._cache.searched[0]) == 8
        assert len(policy._cache._answers[1]) == 40


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": 0}, "`candidates >= 1` and `starts >= 1` must hold, but got candidates=0, starts=4"),
        ({"starts": 0}, "`candidates >= 1` and `starts >= 1` must hold, but got candidates=256, starts=0"),
        ({"similar": 0.0}, r"`0 < similar <= 1` must hold, but got similar=0.0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        GpArgmax(**settings)


def test_an_interrupt_does_not_mix_up_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    belief = belief_over(SPACES["real"])
    policy = built(belief)
    first, second = some_states(belief, 2).split(1)
    with monkeypatch.context() as patch:
        patch.setattr(ExactSearch, "best", interrupted)
        with pytest.raises(KeyboardInterrupt):
            policy(first)
    policy(second)
    assert torch.equal(policy(first), built(belief)(first))


def interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt
