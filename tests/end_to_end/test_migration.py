"""Tables of the first version on a server are brought up to date, also by several processes at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection, text

from conbo import open_study
from conbo.spaces import Real, Space
from conbo.study import Study, schema
from conbo.study.database import Database


def as_of_conbo_0_1(connection: Connection) -> None:
    for column in ("outcomes", "seed"):
        connection.execute(text(f"ALTER TABLE conbo_trials DROP COLUMN {column}"))
    connection.execute(text("ALTER TABLE conbo_schema DROP COLUMN conbo"))
    for table in ("conbo_fits", "conbo_validations"):
        connection.execute(text(f"DROP TABLE {table}"))
    connection.execute(text("UPDATE conbo_schema SET version = 1"))


def test_a_study_of_the_first_version_on_a_server(new_storage: Callable[[str], str]) -> None:
    storage = new_storage("postgresql")
    space = Space(states={"seed": Real(0, 1)}, actions={"wait": Real(0, 1)})
    study = Study(space, method="uniform", storage=storage)
    for trial in study.ask(3):
        study.tell(trial, 1 / 3, noise=0.1)
    study.ask()
    before = study.trials
    Database(storage).write(as_of_conbo_0_1)

    with ThreadPoolExecutor(4) as pool:  # one of them changes the tables, the others wait for it
        opened = list(pool.map(open_study, [storage] * 4))
    assert Database(storage).version() == schema.newest_version()
    assert [one.trials for one in opened] == [before] * 4
    opened[0].tell(3, 2.0, noise=0.1, outcomes={"wait": 1 / 3})
    assert [trial.measured for trial in opened[1].trials] == [{}, {}, {}, {"wait": 1 / 3}]
