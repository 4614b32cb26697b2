"""Build conbo, check what was built, and try it in an empty environment: `make release-check`.

python scripts/check_release.py [--tag v1.2.3]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMOKE_TEST = """
import conbo
space = conbo.Space(states={"s": conbo.Real(0, 1)}, actions={"x": conbo.Real(0, 1)})
study = conbo.Study(space, storage="study.db")
study.run(lambda state, action: -((action["x"] - state["s"]) ** 2), evaluations=12, progress=False)
study.policy().save("policy.json")
print(conbo.__version__, conbo.load_policy("policy.json")({"s": 0.5}))
assert abs(conbo.load_policy("policy.json")({"s": 0.5})["x"] - 0.5) < 0.1
"""


class Environment:
    """A new virtual environment."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self._programs = folder / ("Scripts" if os.name == "nt" else "bin")

    def run(self, program: str, *arguments: str | Path, cwd: Path | None = None) -> str:
        """Run a program of the environment, and return what it prints."""
        command = [self._programs / program, *arguments]
        return subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.PIPE, text=True).stdout.strip()

    def install(self, *requirements: str | Path) -> None:
        """Install requirements with pip, in the versions that constraints.txt pins."""
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
        self.run("python", *pip, *requirements)


def build(folder: Path) -> Path:
    """Build the source archive and, from it, the wheel; check their metadata, and return the path of the wheel.

    `folder` is where the environment with the build tools is created.
    """
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    tools = Environment(folder)
    tools.install("build", "twine")
    tools.run("python", "-m", "build", "--outdir", dist, ROOT)
    print(tools.run("python", "-m", "twine", "check", "--strict", *sorted(dist.iterdir())))
    (wheel,) = dist.glob("*.whl")
    return wheel


def main() -> None:
    """Build the wheel, check it, install it in an empty environment, and run a short study there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", help="must be v and the version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder / "tools")
        version = wheel.name.split("-")[1]
        if options.tag not in (None, f"v{version}"):
            sys.exit(f"The tag must be v{version}, but is {options.tag}.")
        empty = Environment(folder / "empty")
        empty.install(f"{wheel}[fast,plots]")
        print(empty.run("python", "-c", SMOKE_TEST, cwd=folder))
        print(empty.run("conbo", "--version", cwd=folder))
    print(f"{version} can be released; next: git tag -a v{version} -m 'conbo {version}'")


if __name__ == "__main__":
    main()
