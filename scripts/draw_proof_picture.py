"""Draw the picture of docs/proof.md: what the model promised, and what was measured.

python scripts/draw_proof_picture.py
"""

from pathlib import Path
from typing import Any

import numpy as np

import conbo
from conbo.plots.model_checks import fresh_evaluations

PICTURE = Path(__file__).parents[1] / "docs/pictures/proof.png"
TRIALS, FRESH = 30, 80


def main() -> None:
    """Run a study with few, noisy rewards, validate it with many fresh evaluations, and draw the picture."""
    space = conbo.Space(
        states={"load": conbo.Real(0, 1)},
        actions={"speed": conbo.Real(0, 1), "heat": conbo.Real(0, 1), "feed": conbo.Real(0, 1)},
    )
    noise = np.random.default_rng(0)

    def output(state: dict[str, Any], action: dict[str, Any]) -> float:
        off = (action["speed"] - state["load"]) ** 2 + (action["heat"] - 0.3) ** 2 + (action["feed"] - 0.6) ** 2
        return float(10 - 8 * off + 3 * state["load"] + 1.5 * noise.normal())

    study = conbo.Study(space, method="uniform", seed=3)
    study.run(output, TRIALS, progress=False)
    found = study.validate(output, FRESH)
    print(found)
    conbo.plots.save(fresh_evaluations(found), PICTURE)


if __name__ == "__main__":
    main()
