"""Run a simulator in a process that cannot import Numba."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys, warnings
sys.modules["numba"] = None  # importing it now raises ImportError
warnings.simplefilter("error")
from conbo.problems.{module} import simulate
print(json.dumps(simulate({arguments})[0].tolist()))
"""


def rewards_without_numba(module: str, arguments: str) -> list[float]:
    program = PROGRAM.format(module=module, arguments=arguments)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rewards: list[float] = json.loads(result.stdout)
    return rewards
