"""Searches for the best action of one state with Ax and its default model. Needs the extra `ax`."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from conbo.errors import ConboError
from conbo.experiments.state_search import Parameters, best_observed
from conbo.spaces import Categorical, Integer, Parameter, Point, Value

try:
    from ax.api.client import Client
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
except ModuleNotFoundError as error:
    raise ConboError("this alternative needs Ax, which is not installed: pip install 'conbo[ax]'") from error

METRIC = "reward"


@dataclass(frozen=True)
class AxSearch:
    """The search with Ax for the best action of one state.

    The Ax client is rebuilt for every suggestion, from the results so far, so that a run can be continued
    after any evaluation.
    """

    actions: Parameters
    exact: bool  # whether rewards have no noise; Ax is told so

    def suggest(self, tried: Sequence[tuple[Point, float]], seed: int) -> dict[str, Value]:
        """The next action to evaluate, given the actions tried so far with their rewards."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            (parameters,) = self._client(tried).get_next_trials(max_trials=1).values()
        return dict(parameters)

    def best(self, tried: Sequence[tuple[Point, float]]) -> dict[str, Value]:
        """The best observed action if rewards have no noise, else the action that Ax's model predicts to be best.

        `tried` holds the actions tried so far with their rewards. If only one was tried, it is returned.
        """
        if self.exact or len(tried) < 2:
            return best_observed(tried)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            client = self._client(tried)
            client.get_next_trials(max_trials=1)  # makes the client fit its model, which it needs to predict
            parameters, *_ = client.get_best_parameterization(use_model_predictions=True)
        return dict(parameters)

    def _client(self, tried: Sequence[tuple[Point, float]]) -> Any:
        for name in ("ax", "ax.api.client"):
            logging.getLogger(name).setLevel(logging.ERROR)  # Ax would log every trial
        client = Client()
        client.configure_experiment(parameters=[_config(name, one) for name, one in self.actions.items()])
        client.configure_optimization(objective=METRIC)
        client.configure_generation_strategy(initialization_budget=1, initialize_with_center=False)
        for action, reward in tried:
            index = client.attach_trial(parameters=dict(action))
            outcome: Any = (reward, 0.0) if self.exact else reward
            client.complete_trial(trial_index=index, raw_data={METRIC: outcome})
        return client


def _config(name: str, parameter: Parameter) -> Any:
    if isinstance(parameter, Categorical):
        kind: Any = "str" if isinstance(parameter.choices[0], str) else "float"
        values: Any = list(parameter.choices)
        return ChoiceParameterConfig(name=name, values=values, parameter_type=kind)
    return RangeParameterConfig(
        name=name,
        bounds=(parameter.low, parameter.high),
        parameter_type="int" if isinstance(parameter, Integer) else "float",
        scaling="log" if parameter.log else "linear",
    )
