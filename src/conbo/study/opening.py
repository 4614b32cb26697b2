"""Opening a stored study by its name."""

from conbo.record_fields import errors_about
from conbo.study.database import Storage
from conbo.study.description import from_record
from conbo.study.stored import open_stored
from conbo.study.study import Study


def open_study(storage: Storage, name: str = "default", *, device: str = "cpu") -> Study:
    """Open a stored study with its stored settings.

    Parameters
    ----------
    storage
        Path of an SQLite file, or URL of a PostgreSQL database.
    name
        Name of the study.
    device
        Torch device for fitting the model and for searches, such as "cpu", "cuda" or "cuda:1".

    Returns
    -------
    Study
        The study, which continues where it stopped.

    Raises
    ------
    StudyError
        If there is no such study; the message lists the names of all studies. Also if the study needs a function or
        method of your own: then call `Study` with all settings.
    StorageError
        If there is no such database, or it cannot be read.

    Examples
    --------
    >>> study = conbo.Study(space, storage="warehouse.db")
    >>> conbo.open_study("warehouse.db").space == space
    True
    """
    records, settings = open_stored(storage, name)
    with errors_about(records.origin):
        s = from_record(settings)
    return Study(s.space, **s.of_optimizer(), name=name, storage=storage, device=device)
