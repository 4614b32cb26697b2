"""Find the flow angle that is most dangerous for a blade, in every environment: a policy of worst cases.

A safety engineer wants to know, for every wind speed and thickness of ice, at which flow angle a blade is nearest to
breaking, and how near. Wind and ice are the state, the angle is the action, and the safety factor is minimized. The
formula stands for an expensive structural analysis: vortices shake the blade, most of all where their frequency, which
falls with the angle, meets the frequency of the blade, which falls with the weight of the ice.

python examples/robust_design.py
"""

import argparse
import math

import conbo

CHORD = 2.0  # m
FREQUENCY = 5.0  # of the blade without ice, in Hz
DAMPING = 0.12
STROUHAL = 0.2  # frequency of vortices, in flow speeds per width that the flow meets
STRENGTH = 4000.0  # the load at which the blade breaks, in Pa
SHOWN = ((19.0, 35.0), (25.0, 20.0), (31.0, 5.0))


def log_safety_factor(state, action) -> float:
    """Return the logarithm of the safety factor, which is the load that breaks the blade divided by the actual load.

    The logarithm varies about equally much in all states.
    """
    facing = math.sin(math.radians(action["angle"]))
    pressure = 0.5 * 1.2 * state["wind"] ** 2 * facing
    shaken = STROUHAL * state["wind"] / (CHORD * facing)
    own = FREQUENCY / math.sqrt(1 + state["ice"] / 40)
    ratio = shaken / own
    amplification = 1 / math.hypot(1 - ratio**2, 2 * DAMPING * ratio)
    return math.log(STRENGTH / (pressure * (1 + amplification)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=60)
    evaluations = parser.parse_args().evaluations

    space = conbo.Space(
        states={"wind": conbo.Real(18, 32), "ice": conbo.Real(0, 40)},
        actions={"angle": conbo.Real(10, 75)},
    )
    study = conbo.Study(space, direction="minimize", seed=1)
    study.run(log_safety_factor, evaluations=evaluations)
    policy = study.policy()

    print("  wind    ice   worst angle   safety factor   truth: angle   factor")
    for wind, ice in SHOWN:
        state = {"wind": wind, "ice": ice}
        found = policy.predict(state)
        angle = min((a / 10 for a in range(100, 751)), key=lambda angle: log_safety_factor(state, {"angle": angle}))
        factor = math.exp(log_safety_factor(state, {"angle": angle}))
        estimate = f"{found.action['angle']:11.1f}° {math.exp(found.mean):12.2f}"
        print(f"{wind:3.0f} m/s {ice:3.0f} mm {estimate} {angle:17.1f}° {factor:8.2f}")


if __name__ == "__main__":
    main()
