"""Draw the pictures of docs/report.md. The picture of the report page itself needs Chromium.

python scripts/draw_report_pictures.py
"""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

import conbo

FOLDER = Path(__file__).parents[1] / "docs/pictures"
CHROMIUM = "/usr/bin/chromium"
EVALUATIONS = 60
ALONG_DEMAND = ("policy_map", "posterior_surface", "remaining_gain")
OTHERS = ("policy_value", "importance", "calibration")


def warehouse() -> conbo.Study:
    """Run a study of how much to stock, and at which price, when the day's demand and the season are known."""
    space = conbo.Space(
        states={"demand": conbo.Real(10, 100), "season": conbo.Categorical(["summer", "winter"])},
        actions={"stock": conbo.Real(0, 150), "price": conbo.Real(2, 12)},
    )
    noise = np.random.default_rng(0)

    def profit(state: dict[str, Any], action: dict[str, Any]) -> float:
        willing = 9 if state["season"] == "winter" else 6
        sold = min(action["stock"], 1.4 * state["demand"] / (1 + math.exp(action["price"] - willing)))
        return action["price"] * sold - 2 * action["stock"] + 5 * noise.normal()

    study = conbo.Study(space, state_distribution={"demand": conbo.Normal(60, 20)}, name="Warehouse")
    study.run(profit, evaluations=EVALUATIONS)
    return study


def photograph(study: conbo.Study, path: Path) -> None:
    """Save a screenshot of the top of the study's report, as a browser shows it."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        conbo.report(study, page)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 1180})
        tab.goto(page.as_uri())
        tab.evaluate("Promise.all([explorer.ready, plotly]).then(() => null)")
        tab.wait_for_timeout(1000)
        tab.screenshot(path=path)
        browser.close()


def main() -> None:
    study = warehouse()
    for name in ALONG_DEMAND:
        conbo.plots.save(getattr(conbo.plots, name)(study, "demand"), FOLDER / f"{name}.png")
    for name in OTHERS:
        conbo.plots.save(getattr(conbo.plots, name)(study), FOLDER / f"{name}.png")
    photograph(study, FOLDER / "report.png")


if __name__ == "__main__":
    main()
