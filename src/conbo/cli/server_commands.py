"""`conbo serve`, which runs the HTTP service, and `conbo token`, which makes, lists and revokes its tokens."""

import time
from datetime import UTC, datetime
from pathlib import Path

import click

from conbo.cli.tables import as_columns
from conbo.errors import ConboError

_FILE = click.Path(dir_okay=False, path_type=Path)
_NEEDED = ("fastapi", "jinja2", "matplotlib", "plotly", "uvicorn")  # modules that the extra `server` installs


@click.command()
@click.option("--storage", required=True, metavar="URL", help="An SQLite file or the URL of a database.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@click.option("--token-file", type=_FILE, help="The file of `conbo token`; without it, only this machine has access.")
def serve(storage: str, host: str, port: int, token_file: Path | None) -> None:
    """Serve the studies of a database over HTTP, with a dashboard.

    Several services may share a database. For TLS, put a proxy in front of the service.

    \b
      conbo token --right run --file tokens.json
      conbo serve --storage warehouses.db --token-file tokens.json
    """
    try:
        from conbo.server.app import serve
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        needed = f"`conbo serve` needs {error.name}, which is not installed: pip install 'conbo[server]'"
        raise ConboError(needed) from error

    serve(storage, host, port, token_file)


@click.command()
@click.option("--file", "path", type=_FILE, required=True, help="Where the hashes of the tokens are kept.")
@click.option("--right", type=click.Choice(["read", "run", "admin"]), help="Make a token with this right.")
@click.option("--days", type=float, default=90, show_default=True, help="Days until the token expires.")
@click.option("--label", default="", help="Whose token it is, for the list.")
@click.option("--revoke", metavar="ID", help="Make a token invalid from now on.")
def token(path: Path, right: str | None, days: float, label: str, revoke: str | None) -> None:
    """Make a token for the service, or list or revoke tokens.

    The right `read` lets a client see studies and their policies; `run` also lets it ask and tell; `admin` also lets it
    create studies. A new token is printed once, and the file keeps only its hash. Without --right and --revoke, the
    tokens are listed. A running service notices all changes.
    """
    from conbo.server.tokens import RIGHTS, TokenFile

    if right is not None and revoke is not None:
        raise click.UsageError("--right makes a token and --revoke ends one: give one of them.")
    tokens = TokenFile(path)
    if revoke is not None:
        tokens.revoke(revoke)
    elif right is not None:
        click.echo(tokens.add(next(known for known in RIGHTS if known == right), days, label))
    else:
        rows = [(t.id, f"{t.right:<5}  {_until(t.expires)}  {t.label}".rstrip()) for t in tokens.tokens()]
        click.echo(as_columns(rows) if rows else "There are no tokens.")


def _until(expires: float) -> str:
    day = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d")
    return f"until {day}" if time.time() < expires else f"expired {day}"
