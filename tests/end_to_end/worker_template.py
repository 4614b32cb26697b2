"""Imported by the process from which workers are forked: all that a worker imports and compiles in its first run."""

import psycopg  # noqa: F401
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401
import torch
from worker_programs import SPACE, reward

from conbo import Study

torch.set_num_threads(1)
Study(SPACE, method="pei", initial=4).run(reward, evaluations=6, progress=False)
