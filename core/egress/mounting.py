"""The values that the operator lets lie in users' jails as files, for the spawner, which builds these.

Core has no way to ask for one: the spawner asks over a pair of its own, and what may be given stands in
the configuration. What is not there is left out; what cannot be looked at now is refused, and no jail starts.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack

import structlog

from core.audit.records import Auditor, Record
from core.egress.vault_access import OpenCredential
from jail.host.messages import AskMounts
from jail.host.sealed import sealed_file

_log = structlog.get_logger(__name__)


class Mounting:
    """Answers the spawner. On the loop's thread.

    Args:
        mounts: names of a user's credentials that may be given.
        open_credential: opens one.
        auditor: of what was given.
    """

    def __init__(
        self,
        mounts: Callable[[str], tuple[str, ...]],
        open_credential: OpenCredential,
        auditor: Auditor,
    ) -> None:
        self._mounts, self._open, self._auditor = mounts, open_credential, auditor

    async def answer(self, question: AskMounts) -> dict[str, int]:
        """A sealed memory file by name, the taker's to close. Raises VaultUnavailable."""
        user, found = question.user, dict[str, int]()
        with ExitStack() as held:
            for name in question.names:
                if name not in self._mounts(user):
                    self._leave_out(user, name, "the configuration does not have it")
                elif (credential := await self._open(user, name)) is None:
                    _log.info("mount_absent", user=user, credential=name)
                elif credential.terms.kind == "oauth2":
                    self._leave_out(user, name, "an access token of oauth2 changes: it is not mounted")
                else:
                    found[name] = sealed_file("credential", credential.secret.reveal().encode())
                    held.callback(os.close, found[name])
            held.pop_all()
        for name in found:
            self._auditor.note(Record("credential_mounted", "done", user=user, on=name))
        return found

    def _leave_out(self, user: str, name: str, why: str) -> None:
        _log.warning("mount_refused", user=user, credential=name, reason=why)
        self._auditor.note(
            Record("credential_refused", "refused", user=user, on=name, detail=f"mount: {why}")
        )
