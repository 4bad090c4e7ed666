"""Turns as they happen: a WebSocket and its HTTP twin, over the sessions' event logs."""

from core.hub.live.parts import LiveParts
from core.hub.live.serving import Live

__all__ = ["Live", "LiveParts"]
