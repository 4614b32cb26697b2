"""Processes that start fast, whichever test comes first, because they are forked from one template."""

import os
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from unittest.mock import patch

TEMPLATE = Path(__file__).parent / "end_to_end" / "worker_template.py"


def forked() -> ForkServerContext:
    """Start the template if there is none; only the first process of a run can say what is in it."""
    context = get_context("forkserver")
    context.set_forkserver_preload([TEMPLATE.stem])
    folders = [str(TEMPLATE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(folders)):
        forkserver.ensure_running()
    return context
