"""The command line of benchmarks that consist of several parts, and their output as tables or JSON."""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Row = dict[str, Any]
Parts = Mapping[str, Callable[[bool], Iterable[Row]]]  # functions by name; the argument asks for a quick version


def command_line(description: str | None, parts: Parts) -> argparse.ArgumentParser:
    """Return a parser of `PART ... --quick --json`, to which a benchmark may add options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser


def run(parts: Parts, names: Iterable[str], quick: bool, as_json: bool) -> None:
    """Run the named parts, or all if none is named, and print their rows."""
    results = {}
    for name in names or parts:
        if as_json:
            results[name] = list(parts[name](quick))
        else:
            print(f"\n{name}: {parts[name].__doc__}")
            show(parts[name](quick))
    if as_json:
        print(json.dumps(results, indent=2))


def show(rows: Iterable[Row]) -> None:
    """Print a table, each row as soon as it is computed."""
    for place, row in enumerate(rows):
        if place == 0:
            print("  ".join(f"{name:>12}" for name in row))
        cells = (f"{v:.3g}" if isinstance(v, float) else "" if v is None else str(v) for v in row.values())
        print("  ".join(f"{cell:>{max(12, len(name))}}" for cell, name in zip(cells, row, strict=True)), flush=True)
