"""What watching and starting turns stands on."""

from dataclasses import dataclass

from core.approvals import ApprovalDesk
from core.config import LiveSection
from core.hub.agents import Agents
from core.hub.tokens import Verifier
from core.hub.turns import Starter
from core.metrics import Metrics
from core.sessions import SessionsService


@dataclass(frozen=True, slots=True)
class LiveParts:
    """Given by the hub.

    ``stall_s`` is how long a client may leave what it was sent unread, ``keep_alive_s`` after how
    long a silent event stream gets a sign of life (in seconds).
    """

    config: LiveSection
    verifier: Verifier
    starter: Starter
    sessions: SessionsService
    agents: Agents
    approvals: ApprovalDesk
    metrics: Metrics
    stall_s: float
    keep_alive_s: float
