"""The methods of a study that return what was learned: policy, policy value, summary, best trials and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conbo.study.shared import SharedOptimizer

if TYPE_CHECKING:
    from conbo.policies.policy import Policy
    from conbo.study_summary import StudySummary


class Learned:
    """The part of `Study` that returns what was learned from the rewards so far."""

    _shared: SharedOptimizer

    def total_cost(self) -> float:
        """Return the total cost of all trials, including running and failed ones.

        Returns
        -------
        float
            The total; 0 in a study without costs. If costs are learned, running and failed trials count with their
            expected costs, and imported results without a cost count as 0.
        """
        return sum(self._shared.up_to_date().total_cost())

    def best_observed(self) -> list[dict[str, Any]]:
        """List the best trial of every state, in a space with finitely many states.

        A trial counts if it is completed and its measured outcomes satisfy all `outcome_constraints`.

        Returns
        -------
        list of dict
            One dict per state, with the `state`, and the `action`, `reward` and `number` of its best trial. If the
            state has no trial that counts, these three are None. States of probability zero are listed only if they
            have a trial that counts.

        Raises
        ------
        SettingError
            If there are infinitely many states, or too many to list: use `policy` then.

        Examples
        --------
        >>> shops = conbo.Space(states={"shop": conbo.Categorical(["north"])}, actions={"stock": conbo.Real(0, 150)})
        >>> study = conbo.Study(shops)
        >>> trial = study.add_trial({"shop": "north"}, {"stock": 40}, reward=80)
        >>> study.best_observed()
        [{'state': {'shop': 'north'}, 'action': {'stock': 40.0}, 'reward': 80.0, 'number': 0}]
        """
        return self._shared.up_to_date().best_observed()

    def policy(self) -> Policy:
        """Learn the best action for every state from the rewards so far.

        Returns
        -------
        Policy
            A function from states to actions. It does not change when more rewards are told.

        Raises
        ------
        ConboError
            If no trial is completed yet, unless the study has a `prior`.

        Examples
        --------
        >>> study.policy()({"demand": 60})
        {'stock': ...}
        """
        return self._shared.up_to_date().policy()

    def policy_value(self) -> float:
        """Estimate the policy's expected reward, averaged over the distribution P[s] of the states.

        The estimate comes from the model alone; `validate` measures the same value by fresh evaluations.

        Returns
        -------
        float
            The estimate.

        Raises
        ------
        ConboError
            If no trial is completed yet, unless the study has a `prior`.
        """
        return self._shared.up_to_date().policy_value()

    def summary(self) -> StudySummary:
        """Summarize what the model has learned.

        Returns
        -------
        StudySummary
            What the policy and the best single action are worth, what it is worth to know the state, and in which
            states most is left to learn. It prints as two or three sentences.

        Raises
        ------
        ConboError
            If no trial is completed yet, unless the study has a `prior`.

        Examples
        --------
        >>> print(study.summary())
        The policy is worth ...
        """
        return self._shared.up_to_date().summary()
