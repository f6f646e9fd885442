"""Phases → services → cells; failures become data; whoever listens is told by events."""

from draftmark.campaign.run import PASSING, Campaign, Outcome, commands, narrow

__all__ = ["PASSING", "Campaign", "Outcome", "commands", "narrow"]
