"""The paper's three theorems on problems small enough for brute force."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG
from conbo.acquisition.quadrature_states import GaussianStates
from conbo.belief import Belief
from conbo.models.exact import condition
from conbo.models.factorization import cholesky
from conbo.models.kernels import Kernel
from conbo.proposals.maximizer import Maximizer
from conbo.spaces import Categorical, Real, Space
from conbo.state_distributions import Weights
from random_beliefs import belief_on, belief_with, generator, points_in, product_kernel, tensor, trend_kernel

STATES, ACTIONS = 2, 3
SPACE = Space(states={"k": Categorical(range(STATES))}, actions={"c": Categorical(range(ACTIONS))})
PROBABILITIES = tensor([0.7, 0.3])
DISTRIBUTION = Weights({0: 0.7, 1: 0.3})
PAIRS = tensor([[(s + 0.5) / STATES, (x + 0.5) / ACTIONS] for s in range(STATES) for x in range(ACTIONS)])
EXACT = ConBO(DiscreteKG(100))  # 100 draws of 3 actions: all of them are in the set
CONBO, CONBO_5 = ConBO(HybridKG()), ConBO(HybridKG(5, spread=1.0, estimate="lower"), GaussianStates())
KERNELS: dict[str, Kernel] = {
    "product": product_kernel(SPACE, 1.5, 1.2, 1.3),
    "trend": trend_kernel(SPACE, 1.2, (0.7, 0.5, 0.3)),
}


def value(mean: Tensor) -> Tensor:
    """Expected reward Σ P[s] max_x μ(s, x) of the best policy, for means (..., pairs)."""
    return mean.unflatten(-1, (STATES, ACTIONS)).amax(-1) @ PROBABILITIES


def value_of_information(kernel: Kernel, belief: Belief, noise: float, constant: float) -> Tensor:
    """Of one more reward at each pair: it is drawn, the model conditioned on it, the policy chosen anew."""
    ranks = (torch.arange(4001, dtype=torch.float64) + 0.5) / 4001
    outcomes = torch.special.ndtri(ranks)  # 4001 equally likely rewards, standardized
    told, posterior = belief.observations, belief.posterior
    values = []
    for point in PAIRS:
        here = point[None]
        rewards = posterior.mean(here) + (posterior.variance(here) + noise).sqrt() * outcomes
        # conditioning is linear in the reward: two of them tell the mean after any
        points = torch.cat([told.points, here])
        zero, one = (
            condition(kernel, constant, noise, points, torch.cat([told.rewards, tensor([y])])).mean(PAIRS)
            for y in (0.0, 1.0)
        )
        values.append(value(zero + rewards[:, None] * (one - zero)).mean() - value(posterior.mean(PAIRS)))
    return torch.stack(values)


# below and above the value of information; the paper's estimate never exceeds it
@pytest.mark.parametrize(
    ("acquisition", "below", "above"),
    [
        (EXACT, 1e-4, 1e-4),
        (CONBO, 0.01, 0.003),
        (ConBO(HybridKG(31)), 1e-3, 1e-3),
        (CONBO_5, 0.02, 1e-4),
        (ConBO(HybridKG(201, spread=1.0, estimate="lower")), 1e-3, 1e-4),
    ],
    ids=["discrete", "conbo", "conbo with many nodes", "conbo-5", "conbo-201"],
)
@pytest.mark.parametrize("name", KERNELS)
def test_theorem_1_conbo_is_the_value_of_information(name: str, acquisition: ConBO, below: float, above: float) -> None:
    kernel = KERNELS[name]
    for seed in range(3):
        belief = belief_with(SPACE, kernel, 5, noise=0.2, seed=seed, constant=0.3, distribution=DISTRIBUTION)
        information = value_of_information(kernel, belief, 0.2, 0.3)
        error = acquisition.build(belief, generator())(PAIRS) - information

        assert float(information.amax()) > 0.01
        assert -below < float(error.amin())
        assert float(error.amax()) < above


def test_theorem_1_by_sampling_the_world() -> None:
    """The same with worlds drawn from the posterior and noise added: no formula of the look-ahead is used."""
    kernel = KERNELS["product"]
    belief = belief_with(SPACE, kernel, n=4, noise=0.2, distribution=DISTRIBUTION)
    told, posterior = belief.observations, belief.posterior
    conbo = EXACT.build(belief, generator())(PAIRS)
    n = 100_000
    mean, covariance = posterior.mean(PAIRS), posterior.covariance(PAIRS, PAIRS)
    draws = generator(7)
    worlds = mean + torch.randn(n, len(PAIRS), generator=draws, dtype=torch.float64) @ cholesky(covariance).mT
    before = worlds @ policy_of(mean)
    for pair in (0, 4):
        rewards = worlds[:, pair] + 0.2**0.5 * torch.randn(n, generator=draws, dtype=torch.float64)
        points = torch.cat([told.points, PAIRS[pair : pair + 1]])
        zero, one = (
            condition(kernel, 0.0, 0.2, points, torch.cat([told.rewards, tensor([y])])).mean(PAIRS) for y in (0.0, 1.0)
        )
        after = (worlds * policy_of(zero + rewards[:, None] * (one - zero))).sum(-1)
        gain = after - before

        error = float(gain.std()) / n**0.5
        assert abs(float(gain.mean()) - float(conbo[pair])) < 4 * error
        assert error < 0.02


def policy_of(mean: Tensor) -> Tensor:
    """Weights (..., pairs) of the rewards that the policy collects: P[s] on its action for s."""
    best = mean.unflatten(-1, (STATES, ACTIONS)).argmax(-1)
    chosen = torch.nn.functional.one_hot(best, ACTIONS).to(mean) * PROBABILITIES[:, None]
    return chosen.flatten(-2)


# The best action leads by 0.7 in both states. After ten rewards of each, with variance 0.1, a difference of means is
# known to within 0.14, so which action is best does not depend on how the noise falls, nor on a platform's rounding.
TRUTH = tensor([0.0, 1.0, 0.3, 0.8, -0.2, 0.1])
NOISE = 0.1
FEW, MANY = 24, 72


def check_learning(suggest: Callable[[Belief, int], Tensor], seed: int) -> None:
    """Sample what is suggested, again and again: so is every pair, and so the policy becomes the best one."""
    kernel, draws = KERNELS["product"], generator(seed)
    points, rewards = PAIRS[:1], TRUTH[:1]
    counts = torch.zeros(len(PAIRS), dtype=torch.long)
    after = {}
    for step in range(1, MANY + 1):
        belief = belief_on(SPACE, condition(kernel, 0.0, NOISE, points, rewards), points, rewards, DISTRIBUTION)
        pair = int((suggest(belief, step) - PAIRS).abs().sum(-1).argmin())
        counts[pair] += 1
        reward = TRUTH[pair] + NOISE**0.5 * torch.randn(1, generator=draws, dtype=torch.float64)
        points, rewards = torch.cat([points, PAIRS[pair : pair + 1]]), torch.cat([rewards, reward])
        after[step] = counts.clone()

    assert int(after[FEW].amin()) >= 1
    assert int(after[MANY].amin()) >= 4
    assert (after[MANY] > after[FEW]).all()
    assert torch.equal(policy_of(belief.posterior.mean(PAIRS)), policy_of(TRUTH))


@pytest.mark.parametrize("seed", range(3))
def test_theorem_2_every_pair_is_sampled_again_and_again(seed: int) -> None:
    check_learning(lambda belief, _: PAIRS[EXACT.build(belief, generator(1))(PAIRS).argmax()], seed)


@pytest.mark.parametrize("acquisition", [CONBO, CONBO_5], ids=["conbo", "conbo-5"])
@pytest.mark.parametrize("seed", range(2))
def test_theorem_2_holds_for_estimates_that_round_to_nothing(acquisition: ConBO, seed: int) -> None:
    """Five nodes see no gain where none of them changes the best action: then the maximizer looks at variances."""
    maximizer = Maximizer(acquisition, screened=32, starts=2, finalists=2)
    check_learning(lambda belief, step: maximizer.propose(belief, 1, generator(step)).points[0], seed)


REAL = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "y": Real(0, 1)})


@given(st.integers(0, 10**6), st.sampled_from([3, 5, 7]), st.floats(-2, 1), st.floats(-2, 1), st.floats(-6, 1))
@settings(max_examples=40)
def test_theorem_3_the_paper_s_estimate_is_never_negative(
    seed: int, n_z: int, log_state: float, log_action: float, log_noise: float
) -> None:
    kernel = product_kernel(REAL, 10**log_state, 10**log_action)
    belief = belief_with(REAL, kernel, n=1 + seed % 25, seed=seed, noise=10**log_noise)
    candidates, states = (
        points_in(REAL, 4, seed + 2),
        points_in(REAL, 12, seed + 3)[:, :1].unflatten(0, (4, 3)),
    )

    ahead = HybridKG(n_z, spread=1.0, estimate="lower").build(belief, generator(seed)).at(states)

    assert float(ahead(candidates, torch.arange(4)).values.amin()) >= 0


def test_theorem_3_nothing_is_gained_at_points_sampled_infinitely_often() -> None:
    kernel = product_kernel(REAL, 0.4, 0.4)
    points = points_in(REAL, 6)
    rewards = torch.sin(9 * points.sum(-1))
    estimator = HybridKG(5, spread=1.0, estimate="lower")
    states = points[:, None, :1]
    gains = []
    for repeats in (1, 10**2, 10**4, 10**6, 10**8):
        # so many rewards with noise of variance 1 are one with noise of variance 1 / repeats; a new one has 1
        posterior = condition(kernel, 0.0, 1.0 / repeats, points, rewards, new_noise=1.0)
        belief = belief_on(REAL, posterior, points, rewards)
        ahead = estimator.build(belief, generator()).at(states)
        gains.append(float(ahead(points, torch.arange(6)).values.amax()))

    assert gains[0] > 1e-3
    assert all(after <= before for before, after in pairwise(gains))
    assert gains[-1] < 1e-12
