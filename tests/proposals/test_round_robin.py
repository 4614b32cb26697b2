"""SCoT and transfer: which state is next, and expected improvement within it."""

from dataclasses import replace

import pytest
import torch

from conbo.acquisition.state_improvement import RewardImprovement, StateImprovement
from conbo.errors import SettingError
from conbo.models.exact import condition
from conbo.optimizer import Optimizer
from conbo.proposals.round_robin import RoundRobin, next_state
from conbo.proposals.transfer import Transfer
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import (
    belief_with,
    finite_differences,
    generator,
    posterior_of,
    product_kernel,
    reals,
    tensor,
    trend_kernel,
)

SPACE = Space(states={"k": Categorical(["a", "b", "c"]), "m": Integer(1, 2)}, actions={"x": Real(0, 1)})
CATEGORIES = Space(states={"k": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1)})
BELIEF = belief_with(CATEGORIES, trend_kernel(CATEGORIES), n=9, noise=0.01)
REWARDS = 3.0 + 2.0 * BELIEF.observations.rewards  # in units that are not standardized


def test_a_batch_fills_up_the_states_with_the_fewest_evaluations() -> None:
    belief = belief_with(SPACE, product_kernel(SPACE), n=4)
    batch = RoundRobin().propose(belief, 14, generator()).points
    visited = torch.cat([belief.observations.points, batch])[:, :2]
    counts = torch.unique(visited, dim=0, return_counts=True)[1]
    assert counts.tolist() == [3] * 6


def test_awaited_points_count() -> None:
    belief = belief_with(CATEGORIES, trend_kernel(CATEGORIES), n=1)
    pending = tensor([[1 / 6, 0.1], [5 / 6, 0.1], [0.5, 0.2]])
    belief = replace(belief, observations=belief.observations.with_pending(pending))
    first = float(belief.observations.points[0, 0])
    assert float(next_state(belief)) == min(s for s in (1 / 6, 0.5, 5 / 6) if abs(s - first) > 0.1)


def test_it_is_expected_improvement_over_the_best_mean_of_the_state() -> None:
    posterior, points = posterior_of(BELIEF), BELIEF.observations.points
    state = points[0, :1]
    incumbent = posterior.mean(points[points[:, 0] == state]).amax()
    candidates = torch.cat([state.expand(20, -1), torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]], -1)
    sd = posterior.variance(candidates).sqrt()
    u = (posterior.mean(candidates) - incumbent) / sd
    normal = torch.distributions.Normal(0.0, 1.0)
    expected = sd * (normal.log_prob(u).exp() + u * normal.cdf(u))
    torch.testing.assert_close(StateImprovement(state).build(BELIEF, generator())(candidates), expected)


def test_the_improvement_of_a_reward_is_that_of_the_best_observed_one() -> None:
    belief = replace(BELIEF, shift=3.0, scale=2.0, observations=replace(BELIEF.observations, rewards=REWARDS))
    posterior, points = posterior_of(belief), belief.observations.points
    state = points[0, :1]
    best = (float(REWARDS[points[:, 0] == state].amax()) - 3.0) / 2.0
    candidates = torch.cat([state.expand(20, -1), torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]], -1)
    z = torch.special.ndtri((torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000)
    sd = (posterior.variance(candidates) + posterior.noise).sqrt()  # of a reward, not only of its mean
    sampled = (posterior.mean(candidates)[:, None] + sd[:, None] * z - best).clamp_min(0).mean(-1)

    acquisition = RewardImprovement(state).build(belief, generator())

    torch.testing.assert_close(acquisition(candidates), sampled, rtol=1e-3, atol=1e-6)
    rows = torch.arange(20)
    inside = candidates.clamp(0.01, 0.99)
    _, gradient = acquisition.local(inside)(inside, rows)
    numeric = finite_differences(lambda p: acquisition.local(p)(p, rows)[0], inside, 1e-6)
    torch.testing.assert_close(gradient, numeric, rtol=1e-4, atol=1e-4)


def test_a_state_without_rewards_is_compared_with_its_best_prediction() -> None:
    belief = belief_with(CATEGORIES, trend_kernel(CATEGORIES), n=9)
    only = belief.observations.points[:, 0] < 0.6
    observations = belief.observations
    told = replace(observations, points=observations.points[only], rewards=observations.rewards[only])
    posterior = condition(posterior_of(belief).kernel, 0.0, 0.01, told.points, told.rewards)
    belief = replace(belief, observations=told, posterior=posterior)
    grid = torch.linspace(0, 1, 400, dtype=torch.float64)[:, None]

    acquisition = RewardImprovement(tensor([5 / 6])).build(belief, generator())

    best = posterior.mean(torch.cat([torch.full_like(grid, 5 / 6), grid], -1)).amax()
    assert acquisition.incumbent == pytest.approx(float(best), abs=1e-4)


def test_transfer_stays_in_the_first_state() -> None:
    assert Transfer().propose(BELIEF, 3, generator()).points[:, 0].tolist() == pytest.approx([1 / 6] * 3)
    assert Transfer().propose(BELIEF, 1, generator(), tensor([0.5])).points[0, 0] == 0.5


def test_continuous_states_are_refused() -> None:
    with pytest.raises(SettingError, match="'scot' must have finitely many states, but 's0' is Real"):
        Optimizer(reals(1, 1), method="scot")
    with pytest.raises(SettingError, match="states in turn need finitely many states"):
        next_state(belief_with(reals(1, 1), product_kernel(reals(1, 1))))


def test_methods_with_a_policy_of_their_own_use_it() -> None:
    for name in ("knn", "transfer-ei", "policy-gradient"):
        optimizer = Optimizer(CATEGORIES, method=name, initial=6)
        for trial in optimizer.ask(6):
            optimizer.tell(trial, trial.action["x"])  # type: ignore[arg-type]
        policy = optimizer.policy()
        actions = policy.many([{"k": "a"}, {"k": "b"}, {"k": "c"}])
        if name == "transfer-ei":
            best = max(t.action["x"] for t in optimizer.trials if t.state == {"k": "a"})
            assert [a["x"] for a in actions] == pytest.approx([best] * 3)
        if name == "knn":
            assert [a["x"] for a in actions] == pytest.approx([max(t.action["x"] for t in optimizer.trials)] * 3)
        assert -1 < optimizer.policy_value() < 2
        policy.wipe_cache()
        assert policy.many([{"k": "a"}])[0] == pytest.approx(actions[0])
