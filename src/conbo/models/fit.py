"""Hyperparameters by maximum a posteriori, and the choice between models.

Of several models the simplest is taken unless another is clearly more probable: a rough kernel before a smooth one,
noise that is the same everywhere before noise that varies with the point, actions as they are before bent ones.
In this order: uneven noise looks much like a function that needs bending, and not the other way round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from conbo.ascent import Race, ascend
from conbo.errors import ConboError
from conbo.models.approximate import Summary, condition_by_size
from conbo.models.exact import ExactPosterior
from conbo.models.factored import Factored
from conbo.models.kernel_families import KernelFamily
from conbo.models.kernels import Kernel
from conbo.models.log_posterior import Expected, LogPosterior
from conbo.models.noise import VaryingNoise
from conbo.models.warped_family import WarpedFamily
from conbo.notices import LOG, in_words

CLIMBED_STARTS = 2  # of those that are looked at, the best few are climbed from
MANY = 300  # rewards: starts are looked for with so many of them, since a look costs n³
LONG = 2.0  # seconds from which on a fit is announced
ITERATIONS = 100
RACE = Race(iterations=15, survivors=CLIMBED_STARTS)  # from then on, a climb that cannot catch up ends
TOLERANCE = 1e-3  # in log-density: far below what the data can tell apart
CAUTION = 1.5  # by so much in log-density a smoother family must be better: where it is wrong it is too sure
NOISE_CAUTION, SLOPE_CAUTION = 3.0, 0.25  # likewise noise that varies, and for each slope what chance may give it
EXACT = 1e-4  # variance of noise below which its slopes do not matter
NOISE_TRIAL = Race(iterations=6, survivors=1)  # most rewards do not ask for it: its climb ends soon without hope
WARP_CAUTION, HINT = 6.0, 3.0  # likewise bent actions (and for each exponent its prior), and when they are tried
WARP_TRIAL = Race(iterations=20, survivors=1)  # a climb may have a long way from where it did without them


@dataclass(frozen=True)
class Fit:
    """Fitted hyperparameters, and the log of posterior density that they reach.

    It keeps what it computed for the last data that it was conditioned on, so that one more reward costs little.
    """

    kernel: Kernel
    constant: float
    noise: float | Tensor | VaryingNoise
    objective: float
    record: dict[str, Any] = field(repr=False, compare=False)  # plain values from which `restored` makes it again
    _last: list[Factored | Summary] = field(default_factory=list, repr=False, compare=False)

    def posterior(self, points: Tensor, rewards: Tensor, noise: Tensor | None = None) -> ExactPosterior:
        """Condition on the data, whose noise has variances (n,) where these are known."""
        known = self.noise if noise is None else noise
        earlier = self._last[0] if self._last else None
        posterior, kept = condition_by_size(self.kernel, self.constant, known, points, rewards, earlier=earlier)
        self._last[:] = [kept]
        return posterior


def expected_seconds(n: int, d: int) -> float:
    """About how long a fit to n rewards at points of d columns takes, on two cores.

    This is rough: it was measured with eight columns (2.6, 9.1 and 37 s for 500, 1,000 and 2,000 rewards) and with two
    and four, and a slow or busy machine may take several times as long.
    """
    return 0.76 * (4 + d) * (n / 1000) ** 2


def announce(n: int, d: int) -> None:
    """Say how long a fit takes before it begins, unless it is quick."""
    if (seconds := expected_seconds(n, d)) > LONG:
        LOG.info("Fitting the model to %s rewards; this takes about %s.", f"{n:,}", in_words(seconds))


class _Climbed(NamedTuple):
    """The best parameters that were found for a target."""

    target: LogPosterior
    parameters: Tensor  # (p,)
    objective: float


@torch.no_grad()
def fit(
    families: Sequence[KernelFamily],
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | None = None,
    small_noise: bool = False,
    bend: bool = False,
) -> Fit:
    """Fit standardised rewards (n,) at unit-cube points (n, d); `noise` holds known variances, else it is learned.

    Of several families with parameters of the same kinds, the smoothest first, a smoother one is taken where it makes
    the rewards clearly more probable; likewise noise that varies, unless noise is known or expected to be small; and
    with `bend` actions that are bent.
    A pure function of its arguments: the same data give the same model, whatever happened before.
    """
    rewards = rewards.cpu()
    expected: Tensor | Expected = noise.cpu() if noise is not None else "small" if small_noise else "moderate"
    climbed: list[_Climbed] = []
    for family in families:
        target = LogPosterior(family, points, rewards, expected)
        # where one family has its best parameters the others have theirs, nearly
        climbed.append(climb(target, climbed[-1].parameters[None] if climbed else promising_starts(target)))
    *smoother, best = climbed
    for smooth in reversed(smoother):
        best = smooth if smooth.objective > best.objective + CAUTION else best
    if not best.objective > -inf:
        raise ConboError(
            "a covariance matrix must be finite and positive definite, but got none at any start of the fit."
        )
    if noise is None and not small_noise:
        best = _with_varying_noise(best)
    if bend:
        best = _with_bent_actions(best)
    *_, constant = best.target(best.parameters[None])
    warped = best.target.family not in families
    family = (
        best.target.family.family if isinstance(best.target.family, WarpedFamily) and warped else best.target.family
    )
    record = {
        "family": families.index(family),
        "warped": warped,
        "varying": best.target.varies,
        "parameters": best.parameters.tolist(),
        "constant": float(constant),
        "objective": best.objective,
    }
    return restored(record, families, points, noise, small_noise)


def restored(
    record: dict[str, Any],
    families: Sequence[KernelFamily],
    points: Tensor,
    noise: Tensor | None = None,
    small_noise: bool = False,
) -> Fit:
    """The fit of a record, given the families and data that it was made from."""
    family = families[record["family"]]
    family = WarpedFamily(family) if record["warped"] else family
    expected: Expected = "varying" if record["varying"] else "small" if small_noise else "moderate"
    nothing = points[:0].cpu()
    target = LogPosterior(family, nothing, nothing[:, 0], expected if noise is None else noise.cpu())
    parameters = torch.tensor(record["parameters"], dtype=torch.float64)
    kernel, learned = target.kernel(parameters), target.noise_of(parameters)
    if points.device.type != "cpu":
        kernel, learned = kernel.to(points.device), learned if isinstance(learned, float) else learned.to(points.device)
    return Fit(kernel, record["constant"], learned, record["objective"], record)


def _with_varying_noise(constant: _Climbed) -> _Climbed:
    """The same family with noise that varies, if that is clearly more probable."""
    noise = constant.target.noise_of(constant.parameters)
    if isinstance(noise, float) and noise < EXACT:
        return constant
    target = LogPosterior(constant.target.family, constant.target.points, constant.target.rewards, "varying")
    goal = constant.objective + NOISE_CAUTION + SLOPE_CAUTION * target.n_slopes
    varying = climb(target, promising_starts(target), replace(NOISE_TRIAL, goal=goal))
    return varying if varying.objective > goal else constant


def _with_bent_actions(straight: _Climbed) -> _Climbed:
    """The same model with bent actions, if that is clearly more probable."""
    family, old = WarpedFamily(straight.target.family), straight.target
    if not family.n_warps:
        return straight
    target = LogPosterior(family, old.points, old.rewards, old.noise)
    bends = slice(family.n_own, family.n_own + family.n_warps)
    own, rest = straight.parameters[: family.n_own], straight.parameters[family.n_own :]
    start = torch.cat([own, own.new_zeros(family.n_warps), rest])
    if target.promise(start, bends) < HINT:
        return straight
    goal = straight.objective + WARP_CAUTION
    bent = climb(target, start[None], replace(WARP_TRIAL, goal=goal))
    return bent if bent.objective > goal else straight


def climb(target: LogPosterior, starts: Tensor, race: Race = RACE) -> _Climbed:
    """The best that is reached from starts (r, p)."""
    lower, upper = target.bounds.T
    starts = starts.clamp(lower, upper)
    curvature = target.curvature(starts)
    ascent = ascend(lambda p, _: target(p)[:2], starts, lower, upper, ITERATIONS, 0.05, TOLERANCE, race, curvature)
    best = ascent.values.argmax()
    return _Climbed(target, ascent.points[best], float(ascent.values[best]))


def promising_starts(target: LogPosterior) -> Tensor:
    """The best few of the quasi-random starts; of many rewards, what fits some of them."""
    if len(target.points) > MANY:
        some = target.thinned(MANY)
        return climb(some, promising_starts(some)).parameters[None]
    starts = target.starts()
    return starts[target(starts)[0].argsort(descending=True, stable=True)[:CLIMBED_STARTS]]
