"""Prompts of five kinds, contexts of exact length and sessions of several turns, all from a seed."""

from draftmark.workload.checks import check, sane_share
from draftmark.workload.tokenizer import Tokenizer, read_tokenizer
from draftmark.workload.work import check_files, control_of, margins_of, prompts_used, rounds, work

__all__ = [
    "Tokenizer",
    "check",
    "check_files",
    "control_of",
    "margins_of",
    "prompts_used",
    "read_tokenizer",
    "rounds",
    "sane_share",
    "work",
]
