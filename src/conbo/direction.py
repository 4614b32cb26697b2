"""The sign of rewards: models and methods always maximize, so rewards to be minimized are negated.

On the way in, rewards are multiplied by the result of `sign_of` in one place, `Learner._observations` in `learner.py`.
This method also converts known limits of the expected reward, by `maximized` in `reward_range.py`. The rewards in a
`Belief`, and its predictions of them, are therefore numbers to maximize.

On the way out, values are multiplied by the sign again:

- predictions by `Policy._predict` (`policies/policy.py`),
- the policy value by `Learner.policy_value` (`learner.py`),
- the values in a summary by `summarize` (`study_summary.py`),
- the values in a comparison by `compare_by_model` (`comparison.py`),
- what plots and reports show, with `View.sign` (`plots/view.py`),
- the rewards of a policy that becomes a prior, by `_trials_of_policy` (`prior_study.py`).

`best_observed` (`best_observed.py`) and `Validation.difference` (`validation.py`) get rewards as the user gave them.
They use the sign only to tell which of two rewards is better.
"""

from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["maximize", "minimize"]


def sign_of(maximize: bool) -> int:
    """Return the factor that turns rewards into numbers to maximize: 1, or -1 if rewards are minimized."""
    return 1 if maximize else -1
