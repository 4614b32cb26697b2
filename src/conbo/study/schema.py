"""The tables of a database of studies, and how they came to be what they are."""

from collections.abc import Callable

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
    update,
)

from conbo.errors import StorageError

METADATA = MetaData()

VERSIONS = Table("conbo_schema", METADATA, Column("version", Integer, nullable=False))

# Times are seconds since 1970 by the database's clock.
STUDIES = Table(
    "conbo_studies",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("settings", Text, nullable=False),  # JSON, with the seed
    Column("revision", Integer, nullable=False, default=0),  # counts the changes of the settings
    Column("changes", BigInteger, nullable=False, default=0),  # counts the changes of the trials
    Column("version", Text, nullable=False),  # of conbo, when the study was created
    Column("created", Double, nullable=False),
    Column("suggesting", Text),  # the worker that finds the next point
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
    Column("error", Text, nullable=False, default=""),
    Column("worker", Text),
    Column("attempts", Integer, nullable=False, default=1),
    Column("lost", Integer, nullable=False, default=0),  # workers that died with it
    Column("leased_until", Double),  # null: asked for by hand; 0: handed back
    Column("started", Double),
    Column("finished", Double),
    Column("late", Double),
    Column("change", BigInteger, nullable=False),  # the study's `changes` when this row was last written
    Index("conbo_trials_by_change", "study", "change"),
)

# Step k brings version k to version k + 1; an empty database has version 0.
MIGRATIONS: tuple[Callable[[Connection], None], ...] = (METADATA.create_all,)


def schema_version(connection: Connection) -> int:
    """The version of the tables that are there; raises StorageError if they are of a later conbo."""
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    version = connection.scalar(select(VERSIONS.c.version)) or 0
    if not isinstance(version, int) or version < 0:
        raise StorageError(f"the version of its tables must be a whole number, but is {version!r}.")
    if version > len(MIGRATIONS):
        rule = f"its tables must be of version {len(MIGRATIONS)} or older"
        raise StorageError(f"{rule}, but are of version {version}: this database needs a later conbo.")
    return version


def migrate(connection: Connection) -> None:
    """Bring the tables up to date, from whatever version they have."""
    version = schema_version(connection)
    for step in MIGRATIONS[version:]:
        step(connection)
    if version == 0:
        connection.execute(insert(VERSIONS).values(version=len(MIGRATIONS)))
    elif version < len(MIGRATIONS):
        connection.execute(update(VERSIONS).values(version=len(MIGRATIONS)))
