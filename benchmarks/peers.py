"""Other libraries that benchmarks compare conbo with: Optuna, Ax, and ConBO built from BoTorch's components."""

from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import PosteriorMean, qKnowledgeGradient
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from torch import Tensor

from conbo.acquisition.convex_integral import quantile_nodes
from conbo.acquisition.expected_max import expected_max
from conbo.belief import Belief


def optuna_asks(belief: Belief, asks: int = 1) -> Callable[[], None]:
    """Give Optuna's GPSampler the observations of a belief; return a function that asks it several times.

    At the last ask the sampler knows all observations, at the ask before it all but one, and so on.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    points, rewards = belief.observations.points, belief.observations.rewards
    names = [f"p{i}" for i in range(points.shape[1])]
    distributions: dict[str, Any] = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in names}
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.GPSampler(seed=0, n_startup_trials=1))
    trials = [
        optuna.trial.create_trial(
            params=dict(zip(names, point, strict=True)), distributions=distributions, value=reward
        )
        for point, reward in zip(points.tolist(), rewards.tolist(), strict=True)
    ]
    known = len(trials) - asks + 1
    study.add_trials(trials[:known])

    def ask() -> None:
        for number in range(known, len(trials) + 1):
            study.tell(study.ask(distributions), state=optuna.trial.TrialState.FAIL)
            study.add_trials(trials[number : number + 1])

    return ask


def ax_ask(belief: Belief) -> Callable[[], None]:
    """Give Ax's client the observations of a belief; return a function that asks its model once."""
    import logging

    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig

    points, rewards = belief.observations.points, belief.observations.rewards
    names = [f"p{i}" for i in range(points.shape[1])]
    logging.disable(logging.INFO)  # Ax logs every trial
    client = Client()
    client.configure_experiment(
        parameters=[RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in names]
    )
    client.configure_optimization(objective="reward")
    client.configure_generation_strategy(initialization_budget=1, initialize_with_center=False)
    for point, reward in zip(points.tolist(), rewards.tolist(), strict=True):
        index = client.attach_trial(parameters=dict(zip(names, point, strict=True)))
        client.complete_trial(trial_index=index, raw_data={"reward": reward})

    def ask() -> None:
        client.get_next_trials(max_trials=1)

    return ask


def conbo_value_loop(model: SingleTaskGP, point: Tensor, states: Tensor) -> Tensor:
    """Compute the acquisition function ConBO with 5 nodes, and its gradient, at one point (1, d), state by state.

    It is the hybrid knowledge gradient, averaged over `states` (m, d_s). Fantasy models of BoTorch are conditioned on
    the outcome at each node, and optimize_acqf finds the best action after each outcome.
    """
    variable = point.clone().requires_grad_(True)
    total = point.new_zeros(())
    for state in states:
        maximizers = []
        for fantasy in _fantasies(model, point):
            action, _ = _best_action(fantasy, state)
            maximizers.append(torch.cat([state, action[0]]))
        total = total + _hybrid_value(model, variable, torch.stack(maximizers))
    total = total / len(states)
    total.backward()  # type: ignore[no-untyped-call]
    return total.detach()


def conbo_value_batched(model: SingleTaskGP, point: Tensor, states: Tensor) -> Tensor:
    """Compute the acquisition function ConBO with 5 nodes, and its gradient, at one point (1, d), in one batch.

    It is the hybrid knowledge gradient, averaged over `states` (m, d_s). A batched fantasy model of BoTorch is
    conditioned on the outcomes at all nodes; random search and then Adam find the best action after each outcome.
    """
    nodes = quantile_nodes(5, 1.0)
    d_s, d_x = states.shape[1], point.shape[1] - states.shape[1]
    variable = point.clone().requires_grad_(True)
    posterior = model.posterior(point)
    sd = (posterior.variance + model.likelihood.noise).sqrt()
    outcomes = (posterior.mean + sd * nodes[:, None, None]).detach()  # (5, 1, 1)
    fantasy = model.condition_on_observations(point.expand(5, 1, -1), outcomes)
    m, q = len(states), len(nodes)
    pool = torch.rand(40, d_x, dtype=point.dtype)

    def joint(actions: Tensor) -> Tensor:  # (q, m·k, d_x)
        k = actions.shape[1] // m
        return torch.cat([states.repeat_interleave(k, 0).expand(q, -1, -1), actions], -1)

    with torch.no_grad():
        scores = fantasy.posterior(joint(pool.repeat(m, 1).expand(q, -1, -1))).mean.reshape(q, m, 40)
        actions = pool[scores.argmax(-1)]  # (q, m, d_x)
    actions = actions.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([actions], lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        loss = -fantasy.posterior(joint(actions)).mean.sum()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            actions.clamp_(0, 1)
    best = actions.detach().transpose(0, 1)  # (m, q, d_x)
    points = torch.cat([states[:, None].expand(m, q, d_s), best], -1).flatten(0, 1)
    joint_posterior = model.posterior(torch.cat([points, variable]))
    covariance = joint_posterior.distribution.covariance_matrix
    spread = (covariance[-1, -1] + model.likelihood.noise).sqrt()
    slopes = (covariance[:-1, -1] / spread).reshape(m, q)
    means = joint_posterior.mean[:-1, 0].reshape(m, q)
    total = expected_max(means, slopes).gain.mean()
    total.backward()
    return total.detach()


def one_shot_kg(model: Model, d: int) -> None:
    """Optimize BoTorch's one-shot knowledge gradient with 64 fantasies over the d-dimensional unit cube."""
    bounds = torch.stack([torch.zeros(d), torch.ones(d)]).double()
    acquisition = qKnowledgeGradient(model, num_fantasies=64)
    optimize_acqf(acquisition, bounds, q=1, num_restarts=10, raw_samples=512)


def _fantasies(model: SingleTaskGP, point: Tensor) -> list[Model]:
    posterior = model.posterior(point)
    sd = (posterior.variance + model.likelihood.noise).sqrt()
    outcomes = (posterior.mean + sd * node for node in quantile_nodes(5, 1.0))
    return [model.condition_on_observations(point, outcome.detach()) for outcome in outcomes]


def _best_action(model: Model, state: Tensor) -> tuple[Tensor, Tensor]:
    d_x = model.train_inputs[0].shape[-1] - len(state)

    class AtState(torch.nn.Module):
        def forward(self, actions: Tensor) -> Tensor:
            points = torch.cat([state.expand(*actions.shape[:-1], -1), actions], -1)
            return PosteriorMean(model)(points)

    bounds = torch.stack([torch.zeros(d_x), torch.ones(d_x)]).double()
    return optimize_acqf(AtState(), bounds, q=1, num_restarts=1, raw_samples=40, options={"maxiter": 20})


def _hybrid_value(model: SingleTaskGP, point: Tensor, maximizers: Tensor) -> Tensor:
    joint = model.posterior(torch.cat([maximizers, point]))
    covariance = joint.distribution.covariance_matrix
    spread = (covariance[-1, -1] + model.likelihood.noise).sqrt()
    return expected_max(joint.mean[:-1, 0], covariance[:-1, -1] / spread[0]).gain
