"""The next point is where an acquisition function is highest: screen many, climb from the best few, look again.

The maximiser knows nothing of what it maximises: an acquisition offers cheap values for screening (`screen`), a
smooth function with gradients around given starts (`local`), and full values (calling it).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction, ascend
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.proposals.penalized_batch import penalized_batch
from conbo.search.action_candidates import action_candidates, pooled
from conbo.search.best_actions import best_actions
from conbo.models.posterior import Posterior
from conbo.state_distributions import sobol

NEAR_POLICY = 0.25  # share of the screened points that are near the present policy
REACH = 0.1  # standard deviation of the distance to it, in the unit cube
FLAT = 1e-10  # highest value, in standardised rewards, at which an acquisition says nothing


class Acquisition(Protocol):
    """Something to maximise over (state, action), in the unit cube; values are not negative."""

    def screen(self, points: Tensor) -> Tensor:
        """Cheap values (c,) of points (c, d)."""

    def local(self, starts: Tensor) -> BatchedFunction:
        """Values and gradients around starts (r, d)."""

    def __call__(self, points: Tensor) -> Tensor:
        """Full values (c,) of points (c, d)."""


class AcquisitionRecipe(Protocol):
    """A recipe for such a function."""

    def build(self, belief: Belief, generator: torch.Generator) -> Acquisition:
        """Ready for use under one belief."""


@dataclass(frozen=True)
class Search:
    """Everything that was evaluated while an acquisition was maximised, the best first."""

    points: Tensor  # (evaluations, d), snapped
    values: Tensor  # (evaluations,)


@dataclass(frozen=True)
class Maximizer:
    """Screen `screened` points, climb from the best `starts`, re-evaluate where the climbs ended."""

    acquisition: AcquisitionRecipe
    screened: int = 128
    starts: int = 6
    iterations: int = 20

    def __post_init__(self) -> None:
        if not 1 <= self.starts <= self.screened:
            raise SettingError(f"`1 <= starts <= screened` must hold, but got {self.starts} and {self.screened}.")

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Tensor:
        """n points (n, d), apart from each other and from pending ones."""
        search = self.search(belief, generator, state)
        return penalized_batch(belief, search.points, search.values, n)

    def search(self, belief: Belief, generator: torch.Generator, state: Tensor | None = None) -> Search:
        """Maximise, and keep the whole history."""
        acquisition = self.acquisition.build(belief, generator)
        candidates = screening_points(belief, self.screened, generator, state)
        screened = acquisition.screen(candidates)
        starts = candidates[spread_best(belief, candidates, screened, self.starts)]
        lower, upper = box(belief, starts, state)
        ascent = ascend(
            acquisition.local(starts),
            starts,
            lower,
            upper,
            self.iterations,
            first_step=0.05,
            tolerance=1e-3 * float(screened.amax()),
        )
        ends = belief.snap(ascent.points)
        if state is not None:
            ends[:, : belief.n_state_dims] = state
        final = acquisition(ends)
        points = torch.cat([ends, belief.snap(ascent.history_points), candidates])
        values = torch.cat([final, ascent.history_values, screened])
        # the fixed states of a climb flatter the points that it visits: none of them may outrank the final values
        ceiling = final.amax()
        values = torch.cat([final, values[len(final) :].clamp_max(float(ceiling) * (1 - 1e-9))])
        if not float(values.amax()) > FLAT:
            values = variance_of(belief, points)
        return Search(points, values)


def screening_points(belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Tensor:
    """Quasi-random points whose states follow P[s], some of them with actions near the present policy: (n, d)."""
    d_s, d_x = belief.n_state_dims, belief.space.n_action_dims
    seed = int(torch.randint(2**31, (1,), generator=generator))
    spread = sobol(n, d_s + d_x, seed)
    states = belief.states.from_uniform(spread[:, :d_s]) if d_s else spread[:, :0]
    points = torch.cat([states, spread[:, d_s:]], -1).to(belief.device)
    if state is not None:
        points[:, :d_s] = state
    near = int(NEAR_POLICY * n)
    if near:
        pool: Tensor = action_candidates(belief, 64, generator)
        actions = pooled(belief.posterior, pool) if isinstance(belief.posterior, Posterior) else pool
        best = best_actions(belief, actions, points[:near, :d_s], starts=2).actions
        noise = torch.randn(near, d_x, generator=generator, dtype=torch.float64).to(belief.device)
        points[:near, d_s:] = (best + REACH * noise).clamp(0, 1)
    snapped = belief.snap(points)
    if state is not None:
        snapped[:, :d_s] = state
    return snapped


def spread_best(belief: Belief, points: Tensor, values: Tensor, k: int) -> Tensor:
    """Indices of the best k points by value, penalised for resembling each other."""
    from conbo.proposals.penalized_batch import penalty

    chosen: list[int] = []
    score = values.clone()
    for _ in range(min(k, len(points))):
        best = int(score.argmax())
        chosen.append(best)
        score = score * penalty(belief, points, points[best : best + 1])[:, 0].sqrt()
        score[best] = -1.0
    return torch.tensor(chosen, device=points.device)


def box(belief: Belief, like: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The unit cube; categories and a dictated state stay where they are."""
    d = like.shape[-1]
    lower, upper = like.new_zeros(d), like.new_ones(d)
    if state is not None:
        lower[: belief.n_state_dims] = upper[: belief.n_state_dims] = state
    return lower, upper


def variance_of(belief: Belief, points: Tensor) -> Tensor:
    """P[s] times the posterior variance: where to look when nothing promises a gain."""
    d_s = belief.n_state_dims
    density = belief.states.density(points[:, :d_s].cpu()).to(points)
    return density * belief.posterior.variance(points)
