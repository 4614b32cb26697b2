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

    def _repr_html_(self) -> str:
        """A table, in a notebook."""
        return pairs([*self.action.items(), (f"expected reward, {BAND}", with_margin(self.mean, self.std))])
