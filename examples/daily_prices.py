"""Learn while the environment sets the state: an ice cream van sets its price every day, whatever the weather.

The state, today's temperature, is given (`study.ask(state=...)`); only the action, which is the price and the stock, is
chosen. It is chosen for what it teaches about all temperatures, not only about today's.

python examples/daily_prices.py
"""

import argparse

import numpy as np

import conbo

SHOWN_TEMPERATURES = (12.0, 20.0, 28.0)


def expected_sales(temperature: float, price: float) -> float:
    """Return the expected number of scoops sold: more on warm days, when customers also care less about the price."""
    return 60 * np.exp(temperature / 30 - price / (0.5 + temperature / 20))


def profit(temperature: float, action, generator: np.random.Generator) -> float:
    """Return the profit of a day; a scoop costs 0.5, whether it is sold or not."""
    sold = min(generator.poisson(expected_sales(temperature, action["price"])), action["scoops"])
    return action["price"] * sold - 0.5 * action["scoops"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=40, help="days")
    days = parser.parse_args().evaluations

    weather = np.random.default_rng(1)
    space = conbo.Space(
        states={"temperature": conbo.Real(5, 35)},
        actions={"price": conbo.Real(0.5, 6), "scoops": conbo.Integer(0, 150)},
    )
    study = conbo.Study(space, state_distribution={"temperature": conbo.Normal(mean=20, sd=6)}, seed=1)
    for _ in range(days):
        temperature = float(np.clip(weather.normal(20, 6), 5, 35))  # today's forecast
        trial = study.ask(state={"temperature": temperature})
        study.tell(trial, profit(temperature, trial.action, weather))

    policy = study.policy()
    print("temperature   price  scoops   expected profit   average of 1,000 such days")
    for temperature in SHOWN_TEMPERATURES:
        found = policy.predict({"temperature": temperature})
        average = np.mean([profit(temperature, found.action, weather) for _ in range(1000)])
        price, scoops = found.action["price"], found.action["scoops"]
        print(f"{temperature:8.0f} °C {price:8.2f} {scoops:7d} {found.mean:10.1f} ± {found.std:.1f} {average:16.1f}")


if __name__ == "__main__":
    main()
