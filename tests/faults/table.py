"""Every fault, in the order in which they are played."""

from __future__ import annotations

from tests.faults.attacks import ATTACKS
from tests.faults.compiled_sources import CPP, TRITON
from tests.faults.gpu_sources import GPU
from tests.faults.leaks import LEAKS
from tests.faults.machines import MACHINES
from tests.faults.python_sources import PYTHON
from tests.faults.row import Fault
from tests.faults.surroundings import SURROUNDINGS
from tests.faults.task_files import TASK_FILES

TABLE: list[Fault] = [*PYTHON, *LEAKS, *CPP, *TRITON, *TASK_FILES, *SURROUNDINGS, *MACHINES, *ATTACKS, *GPU]
