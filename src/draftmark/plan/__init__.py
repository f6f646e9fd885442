"""A campaign's plan: text → Plan → Matrix of services and cells; no file is read and no clock asked."""

from draftmark.plan.expand import MEASUREMENT, covered, expand, named_files, notes
from draftmark.plan.grid import tokens
from draftmark.plan.read import check_paths, read_plan
from draftmark.plan.starter import starter

__all__ = [
    "MEASUREMENT",
    "check_paths",
    "covered",
    "expand",
    "named_files",
    "notes",
    "read_plan",
    "starter",
    "tokens",
]
