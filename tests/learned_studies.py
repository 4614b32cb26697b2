"""Small studies of every kind of space, with rewards whose best actions are known."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from conbo.plots.view import View, view_of
from conbo.spaces import Categorical, Integer, Real, Space, Value
from conbo.state_distributions import RecipeLike, Triangular, Weights
from conbo.study import Study

Named = dict[str, Value]


def learned(
    space: Space,
    reward: Callable[[Named, Named], float],
    n: int,
    *,
    failing: int = 0,
    state_distribution: RecipeLike = None,
    **settings: object,
) -> Study:
    """A study with n random trials, of which every so many failed."""
    all_settings: dict[str, Any] = {"method": "uniform", "failures": "ignore", **settings}
    all_settings["state_distribution"] = state_distribution
    study = Study(space, **all_settings)
    for trial in study.ask(n):
        if failing and trial.number % failing == 1:
            study.fail(trial, "ValueError: no <b>convergence</b>")
        else:
            study.tell(trial, reward(trial.state, trial.action))
    return study


def one_state(**settings: object) -> Study:
    space = Space(states={"demand": Real(10, 100)}, actions={"stock": Real(0, 150)})
    noise = np.random.default_rng(0)

    def reward(state: Named, action: Named) -> float:
        demand, stock = float(state["demand"]), float(action["stock"])
        return 5 * min(demand, stock) - 2 * stock + float(noise.normal())

    return learned(space, reward, 30, **settings)


def mixed(**settings: object) -> Study:
    """Several states and actions of all kinds; `dull` and `idle` do nothing."""
    space = Space(
        states={"load": Real(1, 1000, log=True), "weather": Categorical(["sun", "rain"]), "dull": Integer(1, 9)},
        actions={
            "power": Real(0, 1),
            "rate": Real(1e-4, 1, log=True),
            "mode": Categorical(["fast", "slow & <i>steady</i>", "$off$"]),
            "idle": Integer(1, 40),
        },
    )
    noise = np.random.default_rng(1)

    def reward(state: Named, action: Named) -> float:
        best = math.log10(float(state["load"])) / 3
        mode = (action["mode"] == "fast") == (state["weather"] == "sun")
        rate = (math.log10(float(action["rate"])) + 2) ** 2
        return 10 * (float(action["power"]) - best) ** 2 + rate - mode + 0.01 * float(noise.normal())

    states = {"load": Triangular(100), "weather": Weights({"sun": 3, "rain": 1})}
    return learned(space, reward, 60, failing=11, state_distribution=states, direction="minimize", **settings)


def wards(n: int = 40) -> Study:
    """A state of finitely many values."""
    actions = {"dose": Real(0, 10), "drug": Categorical(["p", "q"])}
    space = Space(states={"ward": Categorical(list("ABCD"))}, actions=actions)
    noise = np.random.default_rng(2)

    def reward(state: Named, action: Named) -> float:
        best = 2 * "ABCD".index(str(state["ward"]))
        return -((float(action["dose"]) - best) ** 2) / 10 + (action["drug"] == "q") + 0.1 * float(noise.normal())

    return learned(space, reward, n)


def no_state() -> Study:
    space = Space(actions={"x": Real(0, 1), "rate": Real(1e-5, 0.1, log=True), "kind": Categorical(list("abc"))})

    def reward(state: Named, action: Named) -> float:
        return -((float(action["x"]) - 0.3) ** 2) - "abc".index(str(action["kind"])) * 0.1

    return learned(space, reward, 20)


def one_action(**settings: object) -> Study:
    space = Space(actions={"x": Real(0, 1)})
    return learned(space, lambda _, action: math.sin(6 * float(action["x"])), 6, **settings)


STUDIES = {make.__name__: make for make in (one_state, mixed, wards, no_state, one_action)}


@cache
def view(name: str) -> View:
    """What there is to see of one of them; made once, since fitting takes its time."""
    return view_of(STUDIES[name]())
