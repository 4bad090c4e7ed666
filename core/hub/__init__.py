"""HTTP in: the API users' clients speak, and the administrators' own."""

from core.hub.admin import Administration, AdministrationError, MadeToken
from core.hub.agents import Agents
from core.hub.insight import Insight
from core.hub.server import HubParts, HubServer
from core.hub.tokens import Verifier
from core.hub.turns import Turns

__all__ = [
    "Administration",
    "AdministrationError",
    "Agents",
    "HubParts",
    "HubServer",
    "Insight",
    "MadeToken",
    "Turns",
    "Verifier",
]
