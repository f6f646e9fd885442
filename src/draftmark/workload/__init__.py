"""Prompts of five kinds, contexts of exact length and sessions of several turns, all from a seed."""

from draftmark.workload.checks import check
from draftmark.workload.contexts import CountTokens
from draftmark.workload.sessions import Scenario, parse_scenario
from draftmark.workload.work import control_of, prompts_used, work

__all__ = ["CountTokens", "Scenario", "check", "control_of", "parse_scenario", "prompts_used", "work"]
