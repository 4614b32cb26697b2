"""The policy that users get: it takes states and returns actions, both as dicts with values in the user's units."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.dataframes import rows_of, with_columns
from conbo.direction import sign_of
from conbo.errors import PointError, SettingError
from conbo.policies import PolicyRecipe, StatePolicy
from conbo.policies.gp_argmax import GpArgmax
from conbo.policies.policy_file import KernelReader, from_record, to_record
from conbo.policies.policy_map import policy_map
from conbo.prediction import Prediction
from conbo.record_fields import errors_about, parse_json
from conbo.space_columns import into_range
from conbo.spaces import Feasible, Point, Value
from conbo.threads import threads_for

__all__ = ["Policy", "Prediction", "load_policy"]


class Policy:
    """A function from states to actions, learned from the trials of a study.

    `Study.policy` and `load_policy` create policies. A policy caches its actions, which also makes the search in
    similar states faster (see `conbo.policies.policy_cache`).

    Parameters
    ----------
    belief
        What the policy is built from: space, observations and fitted model.
    maximize
        Whether rewards are maximized; if not, they are minimized.
    recipe
        How actions are chosen. By default, the policy takes the action with the best posterior mean.

    Examples
    --------
    >>> policy = study.policy()
    >>> policy({"demand": 60})
    {'stock': ...}
    """

    def __init__(self, belief: Belief, maximize: bool = True, recipe: PolicyRecipe | None = None) -> None:
        self._belief, self._maximize, self._recipe = belief, maximize, recipe
        self.wipe_cache()

    def __repr__(self) -> str:
        space, n = self._belief.space, len(self._belief.observations)
        return f"Policy({', '.join(space.states) or 'no state'} → {', '.join(space.actions)}; {n} rewards)"

    def _repr_html_(self) -> str:
        """Return the policy as HTML, for notebooks: line plots or a table."""
        return policy_map(self)

    @cached_property
    def belief(self) -> Belief:
        """The space, observations and fitted model that the policy was built from, in CPU memory."""
        return self._belief.to(torch.device("cpu"))

    @property
    def maximize(self) -> bool:
        """Whether rewards are maximized; if not, they are minimized."""
        return self._maximize

    @property
    def recipe(self) -> PolicyRecipe | None:
        """How actions are chosen; None stands for the action with the best posterior mean."""
        return self._recipe

    def __call__(self, state: Point | None = None, *, extrapolate: bool = False) -> dict[str, Value]:
        """Choose the action for a state.

        Parameters
        ----------
        state
            The state as a dict from names to values; None in a space without states.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises PointError.

        Returns
        -------
        dict
            The action as a dict from names to values.

        Raises
        ------
        PointError
            If the state does not belong to the space or has no feasible action.

        Examples
        --------
        >>> policy({"demand": 60})
        {'stock': ...}
        """
        return self.many([{} if state is None else state], extrapolate=extrapolate)[0]

    def many(self, states: Sequence[Point], *, extrapolate: bool = False) -> list[dict[str, Value]]:
        """Choose the actions for many states, which is much faster than one call for each state.

        Parameters
        ----------
        states
            The states, as dicts from names to values.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises PointError.

        Returns
        -------
        list of dict
            The actions, in the order of the states.

        Raises
        ------
        PointError
            If a state does not belong to the space or has no feasible action.

        Examples
        --------
        >>> len(policy.many([{"demand": 30}, {"demand": 60}]))
        2
        """
        _, actions = self._search(states, extrapolate)
        return self._belief.space.decode_actions(actions.numpy())

    def predict(self, state: Point | None = None, *, extrapolate: bool = False) -> Prediction:
        """Choose the action for a state, and estimate its reward.

        Parameters
        ----------
        state
            The state as a dict from names to values; None in a space without states.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises PointError.

        Returns
        -------
        Prediction
            The action, its expected reward and the standard deviation of that estimate; and the probability that the
            learned constraints are satisfied, which is None if there are none.

        Raises
        ------
        PointError
            If the state does not belong to the space or has no feasible action.

        Examples
        --------
        >>> policy.predict({"demand": 60})
        Prediction(action={'stock': ...}, mean=..., std=..., probability=None)
        """
        return self.predict_many([{} if state is None else state], extrapolate=extrapolate)[0]

    def predict_many(self, states: Sequence[Point], *, extrapolate: bool = False) -> list[Prediction]:
        """Choose the actions for many states, and estimate their rewards.

        Parameters
        ----------
        states
            The states, as dicts from names to values.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises PointError.

        Returns
        -------
        list of Prediction
            One for every state, in the same order.

        Raises
        ------
        PointError
            If a state does not belong to the space or has no feasible action.

        Examples
        --------
        >>> [prediction.action for prediction in policy.predict_many([{"demand": 30}, {"demand": 60}])]
        [{'stock': ...}, {'stock': ...}]
        """
        encoded, actions = self._search(states, extrapolate)
        return self._predict(encoded, actions)

    def table(self, states: Any, *, extrapolate: bool = False) -> Any:
        """Choose the actions for a dataframe of states, and estimate their rewards.

        Parameters
        ----------
        states
            A dataframe of any library that narwhals reads, with a column for every state parameter. Its other columns
            are kept.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises PointError.

        Returns
        -------
        dataframe
            The same rows, with a new column for every action parameter, and the new columns `predicted_reward` and
            `predicted_std`. If constraints are learned, there is also `predicted_probability`, the probability that
            they are satisfied. New columns replace existing ones of the same name.

        Raises
        ------
        PointError
            If a column is missing, or if a state does not belong to the space or has no feasible action.
        SettingError
            If `states` is not a dataframe, two of its columns have the same name, or a parameter has the name of a new
            column.
        ConboError
            If narwhals is not installed.

        Examples
        --------
        >>> import pandas
        >>> policy.table(pandas.DataFrame({"demand": [30, 60]})).columns.tolist()
        ['demand', 'stock', 'predicted_reward', 'predicted_std']
        """
        names = self._belief.space.state_names
        columns, rows = rows_of(states)
        if missing := [name for name in names if name not in columns]:
            raise PointError(f"a dataframe of states must have a column for every state, but has none for {missing}.")
        points = [{name: row[name] for name in names} for row in rows]
        predictions = self.predict_many(points, extrapolate=extrapolate) if points else []
        actions = {name: [p.action[name] for p in predictions] for name in self._belief.space.action_names}
        estimates = {"predicted_reward": [p.mean for p in predictions], "predicted_std": [p.std for p in predictions]}
        if self._belief.constraints is not None:
            estimates["predicted_probability"] = [float(p.probability or 0.0) for p in predictions]
        if taken := [name for name in estimates if name in (*names, *actions)]:
            raise SettingError(f"a parameter must not have the name of a column that is added, but has '{taken[0]}'.")
        return with_columns(states, {**actions, **estimates})

    def predict_actions(self, states: Sequence[Point], actions: Sequence[Point]) -> list[Prediction]:
        """Estimate the rewards of actions that you choose yourself, one for each state.

        Parameters
        ----------
        states
            The states, as dicts from names to values.
        actions
            One action for every state, as dicts from names to values. Known limits are not checked.

        Returns
        -------
        list of Prediction
            One for every state, in the same order, with the given action.

        Raises
        ------
        PointError
            If a state or an action does not belong to the space, or if there is not one action for every state.

        Examples
        --------
        >>> policy.predict_actions([{"demand": 60}], [{"stock": 40}])
        [Prediction(action={'stock': 40.0}, mean=..., std=..., probability=None)]
        """
        if len(states) != len(actions):
            raise PointError(
                "`states` and `actions` must have the same length, "
                f"but got len(states)={len(states)}, len(actions)={len(actions)}."
            )
        space = self._belief.space
        valid = [space.validate_action(action) for action in actions]
        return self._predict(self._encode(states), torch.from_numpy(space.encode_actions(valid)))

    def wipe_cache(self) -> None:
        """Forget all cached actions, so that later calls search for them again.

        Examples
        --------
        >>> policy.wipe_cache()
        """
        # the seed is constant, so the policy depends only on the belief
        self._best: StatePolicy = (self._recipe or GpArgmax()).build(self._belief, torch.Generator().manual_seed(0))

    def save(self, path: str | Path) -> None:
        """Write the policy to a JSON file, which `load_policy` reads.

        Parameters
        ----------
        path
            The file, which is overwritten.

        Raises
        ------
        SettingError
            If the policy's model is a BoTorch model or has a kernel without the method `record`, or if the policy has a
            recipe of your own.
        StorageError
            If the file is an SQLite database.

        Examples
        --------
        >>> policy.save("policy.json")
        >>> conbo.load_policy("policy.json")
        Policy(demand → stock; ... rewards)
        """
        from conbo.files import write_whole

        write_whole(path, json.dumps(to_record(self._belief, self._maximize, self._recipe)))

    def _encode(self, states: Sequence[Point]) -> Tensor:
        space = self._belief.space
        return torch.from_numpy(space.encode_states([space.validate_state(state) for state in states]))

    def _search(self, states: Sequence[Point], extrapolate: bool) -> tuple[Tensor, Tensor]:
        """Encode states, and return them (m, d_s) and the policy's actions in them (m, d_x), both in the unit cube.

        With `extrapolate`, a number out of range is replaced by the nearest one in range.
        """
        parameters = self._belief.space.states
        inside = [into_range(parameters, state) for state in states] if extrapolate else states
        encoded = self._encode(inside)
        self._belief.space.check_feasible(encoded.numpy())
        with threads_for(len(self._belief.observations)):
            return encoded, self._belief.feasible_actions(encoded, self._best(encoded.to(self._belief.device)).cpu())

    def _predict(self, states: Tensor, actions: Tensor) -> list[Prediction]:
        belief, points = self._belief, torch.cat([states, actions], -1).to(self._belief.device)
        with threads_for(len(belief.observations)), torch.no_grad():
            mean = belief.to_reward(belief.predictive.mean(points)) * sign_of(self._maximize)
            std = belief.scale * belief.predictive.variance(points).sqrt()
            kept = belief.probability(points)
        decoded = belief.space.decode_actions(actions.numpy())
        likely = [None] * len(decoded) if kept is None else kept.tolist()
        return [Prediction(*row) for row in zip(decoded, mean.tolist(), std.tolist(), likely, strict=True)]


def load_policy(path: str | Path, *, kernel: KernelReader | None = None, feasible: Feasible | None = None) -> Policy:
    """Read a policy from a file that `Policy.save` wrote.

    Parameters
    ----------
    path
        The file. A file that conbo 0.1 wrote has no checksum, and loads with a warning.
    kernel
        A function that restores your own kernel, if the model has one: ``kernel(record, space)`` gets what the
        kernel's method `record` returned.
    feasible
        The space's function `feasible`, if it has one; the file holds only the function's name.

    Returns
    -------
    Policy
        The same policy. The distribution of states P[s] is not saved, because actions do not depend on it.

    Raises
    ------
    RecordError
        If the file is damaged, or has a format that this version of conbo does not know; the message names the field.
    StudyError
        If the space has a function `feasible`, and it is not given here or has another name.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> policy.save("policy.json")
    >>> conbo.load_policy("policy.json")({"demand": 60})
    {'stock': ...}
    """
    with errors_about(f"'{path}' is no policy that can be used"):
        return Policy(*from_record(parse_json(Path(path).read_bytes()), kernel, feasible))
