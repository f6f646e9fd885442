"""Phases → services → cells; failures become data; whoever listens is told by events."""

from draftmark.campaign.run import Campaign, Outcome, commands, narrow

__all__ = ["Campaign", "Outcome", "commands", "narrow"]
