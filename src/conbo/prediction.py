"""What a policy predicts in one state: its action, and the expected reward of this action."""

from dataclasses import dataclass

from conbo.html_pieces import pairs
from conbo.rounding import BAND, with_margin
from conbo.spaces import Value


@dataclass(frozen=True)
class Prediction:
    """The action of a policy in a state, and the model's estimate of its expected reward.

    The policy takes the action that looks best under the fitted hyperparameters, so an estimate with the same
    hyperparameters tends to be too good (the winner's curse). To reduce this bias, built-in models average the
    estimate over plausible sets of hyperparameters, except with common random numbers or more than 500 rewards.

    Parameters
    ----------
    action
        The action as a dict from names to values.
    mean
        Expected reward of the action.
    std
        Standard deviation of that estimate, without the noise of a single reward.
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
    std: float
    probability: float | None = None

    def _repr_html_(self) -> str:
        """Return the prediction as an HTML table, for notebooks."""
        rows: list[tuple[str, object]] = [*self.action.items()]
        rows.append((f"expected reward, {BAND}", with_margin(self.mean, self.std)))
        if self.probability is not None:
            rows.append(("probability to keep the constraints", f"{self.probability:.3f}"))
        return pairs(rows)
