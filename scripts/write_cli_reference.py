"""Write docs/command_line.md from the commands themselves.

python scripts/write_cli_reference.py
"""

import inspect
from pathlib import Path

import click

from conbo.cli import SECTIONS, main

PAGE = Path(__file__).parents[1] / "docs" / "command_line.md"

HEAD = """\
# Command line

<!-- written by scripts/write_cli_reference.py -->

    conbo COMMAND [STUDY] ...

**The study.** Commands that need a study find it in `study.toml` of the current folder, unless their first argument,
STUDY, names another file that ends in `.toml`, or a storage: an SQLite file, or the URL of a database such as
`postgresql+psycopg://conbo@dbhost/studies`. If a storage has several studies, `--name` says which.

**Output.** Results go to the standard output, with `--json` as JSON for programs; progress, warnings and errors go to
the error output. Colors and progress bars appear on a terminal only; `NO_COLOR=1` turns colors off. An error is one
line; `--debug`, anywhere in the command, shows its traceback.

**Exit codes.**

| code | meaning                                                                                          |
|-----:|--------------------------------------------------------------------------------------------------|
|    0 | done                                                                                             |
|    1 | an error: a wrong value, an unknown trial, a database that cannot be reached                     |
|    2 | wrong usage: an unknown option, a missing argument                                               |
|    3 | nothing was left to do (the study has its evaluations already), or some evaluations have failed  |
|  130 | interrupted by Ctrl-C; all rewards are kept                                                      |

**Completion.** To complete commands with the Tab key, run one of these lines once, for the shell that you use:

```bash
echo 'eval "$(_CONBO_COMPLETE=bash_source conbo)"' >> ~/.bashrc
echo 'eval "$(_CONBO_COMPLETE=zsh_source conbo)"' >> ~/.zshrc
_CONBO_COMPLETE=fish_source conbo > ~/.config/fish/completions/conbo.fish
```

## The study file

`conbo init` writes a study file with comments:

```{literalinclude} ../src/conbo/cli/study_template.toml
:language: toml
```

Only `[actions]` must be there. A relative path in `storage` starts at the folder of the study file; without `storage`,
the trials of `study.toml` are in `study.db` beside it. The file is read by every command. If the study was begun with
other settings, it is not changed: commands, also `tell` and `fail`, refuse the file and say what differs; `status` and
`export` warn instead, and show what is stored. With the storage in place of the file, every command takes the study as
it is stored.
"""


def page() -> str:
    """Return the text of docs/command_line.md."""
    parts = [HEAD]
    for section, commands in SECTIONS.items():
        parts.append(f"## {section}\n")
        parts += [_command(name) for name in commands]
    return "\n".join(parts)


def _command(name: str) -> str:
    root = click.Context(main, info_name="conbo")
    command = main.get_command(root, name)
    assert command is not None
    context = click.Context(command, parent=root, info_name=name)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    lines = [f"### conbo {name}\n", f"```text\n{usage}\n```\n", f"{text}\n"]
    records = [p.get_help_record(context) for p in command.params if isinstance(p, click.Option)]
    lines += [f"- `{flags}`: {' '.join(meaning.split())}" for flags, meaning in filter(None, records)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
