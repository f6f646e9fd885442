"""A campaign's plan: text ↔ Plan → Matrix of services and cells; no file is read and no clock asked."""

from draftmark.plan.expand import MEASUREMENT, covered, expand, named_files, notes
from draftmark.plan.grid import tokens
from draftmark.plan.lossless import lossless_plan, simulated, with_baselines
from draftmark.plan.read import check_paths, read_plan
from draftmark.plan.starter import starter
from draftmark.plan.write import write_plan

__all__ = [
    "MEASUREMENT",
    "check_paths",
    "covered",
    "expand",
    "lossless_plan",
    "named_files",
    "notes",
    "read_plan",
    "simulated",
    "starter",
    "tokens",
    "with_baselines",
    "write_plan",
]
