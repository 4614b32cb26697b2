"""Ask the package index whether every version in constraints.txt has a wheel for each platform and Python.

python scripts/check_wheels.py

The index is the one that pip is configured for. A pin with an environment marker is needed only on the platforms and
Pythons for which the marker is true. The exit code is 1 if a wheel is missing.
"""

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GLIBC = 28  # wheels may ask for glibc 2.28, of 2018
MACOS = (14, 0)


@dataclass(frozen=True)
class Platform:
    """A platform: its values of environment markers, and the platform tags of wheels for it, preferred ones first."""

    name: str
    system: str  # platform_system
    sys_platform: str
    machine: str  # platform_machine
    tags: tuple[str, ...]

    def environment(self, python: str) -> dict[str, str]:
        """The values of the environment markers of requirements, for a Python version."""
        return {
            "implementation_name": "cpython",
            "os_name": "nt" if self.system == "Windows" else "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": self.system,
            "python_full_version": f"{python}.0",
            "python_version": python,
            "sys_platform": self.sys_platform,
        }


class File(NamedTuple):
    """The name of a file in the package index, and the Python versions that it requires according to the index."""

    name: str
    requires_python: str | None


class Wheel(NamedTuple):
    """The tags and the required Python versions of a wheel, which determine where it can be installed."""

    tags: frozenset[Tag]
    requires_python: SpecifierSet


def linux_tags(machine: str) -> Iterator[str]:
    """The platform tags of Linux wheels that run with glibc 2.28, the one for the newest glibc first."""
    aliases = {17: "manylinux2014"} | ({12: "manylinux2010", 5: "manylinux1"} if machine == "x86_64" else {})
    for minor in range(GLIBC, 4, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in aliases:
            yield f"{aliases[minor]}_{machine}"


PLATFORMS = (
    Platform("linux x86_64", "Linux", "linux", "x86_64", tuple(linux_tags("x86_64"))),
    Platform("linux aarch64", "Linux", "linux", "aarch64", tuple(linux_tags("aarch64"))),
    Platform("macos arm64", "Darwin", "darwin", "arm64", tuple(mac_platforms(MACOS, "arm64"))),
    Platform("windows amd64", "Windows", "win32", "AMD64", ("win_amd64",)),
)


def pins(text: str) -> list[Requirement]:
    """The requirements of a constraints file, without comments and empty lines."""
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def is_needed(pin: Requirement, platform: Platform, python: str) -> bool:
    """Whether a pin applies to a platform and a Python version, according to its environment marker, if it has one."""
    return pin.marker is None or pin.marker.evaluate(platform.environment(python))


@cache
def supported_tags(platform: Platform, python: str) -> frozenset[Tag]:
    """The tags of all wheels that can be installed on a platform with a Python version."""
    major, minor = map(int, python.split("."))
    tags = cpython_tags((major, minor), platforms=platform.tags)
    pure = compatible_tags((major, minor), f"cp{major}{minor}", platform.tags)
    return frozenset(chain(tags, pure))


def wheels_of(pin: Requirement, files: Iterable[File]) -> list[Wheel]:
    """Those of the files that are wheels of the pinned version."""
    wheels = []
    for file in files:
        with suppress(InvalidWheelFilename):  # a source archive, or a page
            _, version, _, tags = parse_wheel_filename(file.name)
            if pin.specifier.contains(version, prereleases=True):
                wheels.append(Wheel(tags, SpecifierSet(file.requires_python or "")))
    return wheels


def gaps(pin: Requirement, files: Iterable[File]) -> list[tuple[Platform, str]]:
    """The platforms and Python versions for which the pin is needed but none of the files is a matching wheel."""
    wheels = wheels_of(pin, files)
    return [
        (platform, python)
        for platform, python in product(PLATFORMS, PYTHONS)
        if is_needed(pin, platform, python)
        and not any(
            wheel.requires_python.contains(f"{python}.0")
            and not wheel.tags.isdisjoint(supported_tags(platform, python))
            for wheel in wheels
        )
    ]


def table(found: Iterable[tuple[Requirement, Sequence[tuple[Platform, str]]]]) -> str:
    """A table with a row for each pin and a column for each platform: the Python versions without a wheel."""
    rows = [["pin", *(platform.name for platform in PLATFORMS)]]
    for pin, missing in found:
        cells = (" ".join(python for place, python in missing if place == platform) for platform in PLATFORMS)
        rows.append([f"{pin.name}{pin.specifier}", *(cell or "-" for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def files_of(names: Iterable[str]) -> dict[str, list[File]]:
    """The files of each project in the package index.

    They are found by pip's own collector, because only pip knows the user's index and its credentials.
    """
    from pip._internal.commands import create_command
    from pip._internal.index.collector import parse_links

    logging.getLogger("pip").setLevel(logging.ERROR)
    command: Any = create_command("download")
    options, _ = command.parse_args([])

    def links(page: Any) -> Iterable[Any]:
        content = collector.fetch_response(page)
        return [] if content is None else parse_links(content)

    def of(name: str) -> list[File]:
        sources = collector.collect_sources(name, candidates_from_page=links)
        places = filter(None, (*sources.find_links, *sources.index_urls))
        found = chain.from_iterable((*place.page_candidates(), *place.file_links()) for place in places)
        return [File(link.filename, link.requires_python) for link in found]

    with command.main_context():
        collector = command._build_package_finder(options, command.get_default_session(options))._link_collector
        return {name: of(name) for name in names}


def main() -> int:
    """Print the pins without a wheel; return the exit code, which is 1 if there are any."""
    pinned = pins(CONSTRAINTS.read_text(encoding="utf-8"))
    files = files_of({pin.name for pin in pinned})
    found = [(pin, missing) for pin in pinned if (missing := gaps(pin, files[pin.name]))]
    if found:
        print(f"Pythons without a wheel, of {', '.join(PYTHONS)}:\n")
        print(table(found))
        return 1
    platforms, pythons = ", ".join(platform.name for platform in PLATFORMS), ", ".join(PYTHONS)
    print(f"All {len(pinned)} pins have wheels for {platforms} and Python {pythons}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
