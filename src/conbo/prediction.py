"""What a policy answers for one state."""

from dataclasses import dataclass

from conbo.html_pieces import pairs
from conbo.rounding import BAND, with_margin
from conbo.spaces import Value


@dataclass(frozen=True)
class Prediction:
    """The action of a policy, and the model's estimate of its expected reward."""

    action: dict[str, Value]
    mean: float
    std: float  # one standard deviation of the estimate, without the noise of a single reward
    probability: float | None = None  # that all learned constraints are kept; None where there are none

    def _repr_html_(self) -> str:
        """A table, in a notebook."""
        rows: list[tuple[str, object]] = [*self.action.items()]
        rows.append((f"expected reward, {BAND}", with_margin(self.mean, self.std)))
        if self.probability is not None:
            rows.append(("probability to keep the constraints", f"{self.probability:.3f}"))
        return pairs(rows)
