"""Points of the unit cube, random and quasi-random."""

import torch
from torch import Tensor


def sobol(n: int, d: int, seed: int) -> Tensor:
    """Scrambled quasi-random points (n, d) of the unit cube (d >= 1), apart from torch's global state."""
    engine = torch.quasirandom.SobolEngine(d, scramble=True, seed=seed)
    return engine.draw(n, dtype=torch.float64)


def uniform(n: int, d: int, generator: torch.Generator) -> Tensor:
    """Independent points (n, d)."""
    return torch.rand(n, d, generator=generator, dtype=torch.float64, device=generator.device)
