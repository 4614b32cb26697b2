"""Studies: suggest trials, evaluate and record them, and learn from them, with any number of workers.

=========================  ========================================================================================
topic                      files
=========================  ========================================================================================
methods of a study         `study.py`, `evaluating.py`, `learned.py`, `trial_tables.py`, `proofs.py`
the loop of a run          `run.py`, `plan.py`, `stopping.py`, `timeouts.py`, `executors.py`, `worker_process.py`
who works on which trial   `records.py`, `heartbeat.py`, `lost_workers.py`, `asking.py`, `workers.py`
trials and tables          `trial_rows.py`, `trial_csv.py`, `csv_text.py`, `cells.py`
the database               `database.py`, `schema.py`, `stored.py`, `stored_fields.py`, `description.py`
=========================  ========================================================================================

Public names are imported on first use, so that a worker process, which needs only `worker_process.py`, does not import
the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conbo.study.opening import open_study
    from conbo.study.run_summary import RunSummary
    from conbo.study.stored import study_names
    from conbo.study.study import Study

_HOME = {"RunSummary": "run_summary", "Study": "study", "open_study": "opening", "study_names": "stored"}

__all__ = ["RunSummary", "Study", "open_study", "study_names"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
