"""The answer of a policy for one state."""

from dataclasses import dataclass

from conbo.html_pieces import pairs
from conbo.rounding import BAND, with_margin
from conbo.spaces import Value


@dataclass(frozen=True)
class Prediction:
    """The action of a policy in a state, and the model's estimate of its expected reward.

    The estimate is averaged over hyperparameters, which corrects it for the winner's curse: see
    `models/hyperparameter_average.py`.

    Parameters
    ----------
    action
        The action by name.
    mean
        Expected reward of the action.
    std
        One standard deviation of that estimate, without the noise of a single reward.
    probability
        Probability that the action satisfies all learned constraints; None if there are none.

    Examples
    --------
    >>> prediction = policy.predict({"demand": 60})
    >>> prediction.mean, prediction.std
    (..., ...)
    """

    action: dict[str, Value]
    mean: float
    std: float  # one standard deviation of the estimate, without the noise of a single reward
    probability: float | None = None  # probability that all learned constraints are satisfied; None if there are none

    def _repr_html_(self) -> str:
        """A table, in a notebook."""
        rows: list[tuple[str, object]] = [*self.action.items()]
        rows.append((f"expected reward, {BAND}", with_margin(self.mean, self.std)))
        if self.probability is not None:
            rows.append(("probability to keep the constraints", f"{self.probability:.3f}"))
        return pairs(rows)
