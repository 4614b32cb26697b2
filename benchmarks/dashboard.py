"""How long it takes until the page of a study with many trials is interactive, in Chromium.

    python benchmarks/dashboard.py
    python benchmarks/dashboard.py --trials 1000 --json

The page counts as interactive when the explorer shows a prediction and the table of trials is there. The figures are
seconds since the address was entered, with an empty cache, and CPU seconds of the page's main thread, which hardly
depend on other load. The service runs on the same machine and has created the report before.
"""

import argparse
import json
import math
import os
import random
import shutil
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import conbo
from conbo.server.app import create_app, server

SPACE = conbo.Space(
    states={"demand": conbo.Real(10, 100), "season": conbo.Categorical(["summer", "winter"])},
    actions={"stock": conbo.Real(0, 150), "price": conbo.Real(2, 12)},
)
WATCH = """
    const watch = () => {
      const answered = document.getElementById("explorer-reward")?.textContent;
      if (answered && document.querySelector("#trial-table tbody tr")) window.interactive = performance.now();
      else setTimeout(watch, 5);
    };
    setTimeout(watch, 5);
"""
SLIDE = """() => new Promise((done) => {
    const slider = document.querySelector("input[type=range]"), began = performance.now();
    slider.value = 150;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    requestAnimationFrame(() => setTimeout(() => done((performance.now() - began) / 1000)));
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        url = _serve(str(Path(folder) / "study.db"), options.trials)
        path = os.environ.get("CONBO_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        rows = [{"width": width, **_opened(browser, url, width)} for width in (390, 1100)]
        browser.close()
    for row in rows:
        print(json.dumps(row) if options.json else "\n".join(f"{name:<28} {value}" for name, value in row.items()))


def _serve(storage: str, n: int) -> str:
    """Start a service with a study of n trials, wait until its report is created, and return the page's address."""
    study = conbo.Study(SPACE, storage=storage, method="uniform")
    chance = random.Random(0)
    study.add_trials([_result(chance) for _ in range(n)])
    service = server(create_app(storage, None, lambda background=False: ThreadPoolExecutor(1)), "127.0.0.1", 0, False)
    threading.Thread(target=service.run, daemon=True).start()
    while not service.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{service.servers[0].sockets[0].getsockname()[1]}/studies/default"
    while "explorer-record" not in urllib.request.urlopen(url).read().decode():
        time.sleep(1)
    return url


def _result(chance: random.Random) -> dict[str, Any]:
    demand, season = chance.uniform(10, 100), chance.choice(["summer", "winter"])
    stock, price = chance.uniform(0, 150), chance.uniform(2, 12)
    sold = min(stock, 1.4 * demand / (1 + math.exp(price - (9 if season == "winter" else 6))))
    reward = price * sold - 2 * stock + chance.gauss(0, 5)
    return {"demand": demand, "season": season, "stock": stock, "price": price, "reward": reward}


def _opened(browser: Browser, url: str, width: int) -> dict[str, float]:
    context = browser.new_context(viewport={"width": width, "height": 844})
    page = context.new_page()
    page.add_init_script(WATCH)
    devtools = context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(url, wait_until="commit")
    page.wait_for_function("() => window.interactive", timeout=120_000)
    measured = devtools.send("Performance.getMetrics")["metrics"]
    row = {
        "interactive after [s]": page.evaluate("window.interactive / 1000"),
        "CPU of the page's thread [s]": next(one["value"] for one in measured if one["name"] == "TaskDuration"),
        "a slider is answered in [s]": page.evaluate(SLIDE),
        "size of the page [MB]": page.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize / 1e6"),
    }
    context.close()
    return {name: round(value, 3) for name, value in row.items()}


if __name__ == "__main__":
    main()
