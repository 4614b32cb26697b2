"""Write the settings of the default method into docs/methods.md, as `conbo methods --show` prints them.

python scripts/write_method_settings.py
"""

from pathlib import Path

from conbo.cli.show_method import settings_lines
from conbo.method_list import DEFAULT_METHOD

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"
BEGIN, END = "<!-- settings, written by scripts/write_method_settings.py -->\n", "<!-- end of settings -->\n"


def page() -> str:
    """Return the text of docs/methods.md, with the current settings of the default method."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join(settings_lines(DEFAULT_METHOD))
    return f"{before}{BEGIN}\n```text\n{lines}\n```\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
