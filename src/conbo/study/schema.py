"""The tables of a database of studies, and the migrations from earlier versions."""

from collections.abc import Callable
from importlib.metadata import version as installed_version

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)

from conbo.errors import StorageError

METADATA = MetaData()

VERSIONS = Table(
    "conbo_schema",
    METADATA,
    Column("version", Integer, nullable=False),
    Column("conbo", Text),  # the version of conbo that made these tables; conbo 0.1.0 has no such column
)

# Times are seconds since 1970 by the database's clock.
STUDIES = Table(
    "conbo_studies",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("settings", Text, nullable=False),  # JSON, with the seed
    Column("revision", Integer, nullable=False, default=0),  # counts the changes of the settings
    Column("changes", BigInteger, nullable=False, default=0),  # counts the changes of the trials
    Column("version", Text, nullable=False),  # version of conbo that created the study
    Column("created", Double, nullable=False),
    Column("suggesting", Text),  # name of the worker whose turn it is to suggest trials
    Column("suggesting_until", Double),
)

TRIALS = Table(
    "conbo_trials",
    METADATA,
    Column("study", ForeignKey(STUDIES.c.id), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),  # JSON
    Column("action", Text, nullable=False),  # JSON
    Column("status", Text, nullable=False),
    Column("reward", Double),
    Column("noise", Double),
    Column("outcomes", Text),  # JSON, outcomes other than the reward; null if there are none
    Column("error", Text, nullable=False, default=""),
    Column("worker", Text),
    Column("attempts", Integer, nullable=False, default=1),
    Column("lost", Integer, nullable=False, default=0),  # number of workers that died while evaluating it
    Column("leased_until", Double),  # null: asked for without a lease; 0: handed back or enqueued
    Column("started", Double),
    Column("finished", Double),
    Column("late", Double),
    Column("change", BigInteger, nullable=False),  # the study's `changes` when this row was last written
    Column("seed", BigInteger),  # seed of the simulator, if the study chooses it
    Index("conbo_trials_by_change", "study", "change"),
)

# Fitted hyperparameters, so that several workers do not repeat the same fit. This table may be emptied: workers then
# fit again.
FITS = Table(
    "conbo_fits",
    METADATA,
    Column("study", ForeignKey(STUDIES.c.id), primary_key=True),
    Column("key", Text, primary_key=True),  # a digest of the data and of the model's settings
    Column("fit", Text, nullable=False),  # JSON, preceded by its digest
)

# Validations: fresh evaluations of the policy's actions, which no model is fitted to.
VALIDATIONS = Table(
    "conbo_validations",
    METADATA,
    Column("study", ForeignKey(STUDIES.c.id), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("record", Text, nullable=False),  # JSON
    Column("created", Double, nullable=False),
)


def _add_outcomes(connection: Connection) -> None:
    connection.execute(text(f"ALTER TABLE {TRIALS.name} ADD COLUMN outcomes TEXT"))


def _add_fits(connection: Connection) -> None:
    FITS.create(connection)


def _add_validations(connection: Connection) -> None:
    VALIDATIONS.create(connection)


def _add_seeds(connection: Connection) -> None:
    connection.execute(text(f"ALTER TABLE {TRIALS.name} ADD COLUMN seed BIGINT"))


# The first function migrates version 1 to version 2, the next one version 2 to 3, and so on. An empty database (version
# 0) gets the tables above directly, so whoever adds a function also changes these. An SQLite file is backed up first.
MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_add_outcomes, _add_fits, _add_validations, _add_seeds)


def newest_version() -> int:
    """The version of the tables that this module defines."""
    return 1 + len(MIGRATIONS)


def schema_version(connection: Connection) -> int:
    """The version of the database's tables; 0 if there are none.

    Raises StorageError if a later version of conbo created or migrated them.
    """
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    version = connection.scalar(select(VERSIONS.c.version)) or 0
    if not isinstance(version, int) or version < 0:
        raise StorageError(f"the version of its tables must be a whole number, but is {version!r}.")
    if version > newest_version():
        made_by = connection.scalar(select(VERSIONS.c.conbo)) if _says_who_made_it(connection) else None
        remedy = f"pip install 'conbo>={made_by}'" if made_by else "pip install --upgrade conbo"
        raise StorageError(
            f"conbo {installed_version('conbo')} knows tables up to version {newest_version()}, but this "
            f"database has tables of version {version}, by a later conbo: `{remedy}`."
        )
    return version


def migrate(connection: Connection) -> None:
    """Create the tables, or migrate them from their version to the newest."""
    version = schema_version(connection)
    made = {"version": newest_version(), "conbo": installed_version("conbo")}
    if version == 0:
        METADATA.create_all(connection)
        connection.execute(insert(VERSIONS).values(made))
    elif version < newest_version():
        for step in MIGRATIONS[version - 1 :]:
            step(connection)
        if not _says_who_made_it(connection):
            connection.execute(text(f"ALTER TABLE {VERSIONS.name} ADD COLUMN conbo TEXT"))
        connection.execute(update(VERSIONS).values(made))


def _says_who_made_it(connection: Connection) -> bool:
    return any(column["name"] == VERSIONS.c.conbo.name for column in inspect(connection).get_columns(VERSIONS.name))
