"""Users' own egress rules in ``_keys/vault.db``: no secret, but nobody else's to change."""

import os
import sqlite3
from typing import NamedTuple

import msgspec

from core.config import EgressRule, path_fault
from core.egress.rule_messages import KeptRule
from core.vault.errors import VaultRefusal

_MAX_PER_USER = 100
_ID_BYTES = 4
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(EgressRule).decode


class RuleRow(NamedTuple):
    """As it is stored; ``text`` is the rule as JSON."""

    user: str
    rule_id: str
    text: str
    created_s: int

    def kept(self) -> KeptRule:
        """What it says. Raises VaultRefusal for one that a newer version wrote."""
        try:
            return KeptRule(self.rule_id, _decode(self.text), self.created_s)
        except msgspec.DecodeError:
            raise VaultRefusal(
                "a rule in the vault is none; remove the user's rules and add them again"
            ) from None


class RuleStore:
    """The table, on the vault's own connection: one thread at a time. Raises sqlite3.Error."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, user: str, rule: EgressRule, now_s: int) -> tuple[RuleRow, bool]:
        """Keep one, and whether it is new. Raises VaultRefusal."""
        if fault := path_fault(rule.path):
            raise VaultRefusal(f"path: {fault}")
        if not rule.methods:
            raise VaultRefusal("methods: name at least one")
        text = _encode(rule).decode()
        rows = self.of(user)
        found = next((row for row in rows if row.text == text), None)
        if found is not None:
            return found, False
        if len(rows) >= _MAX_PER_USER:
            raise VaultRefusal(f"a user has at most {_MAX_PER_USER} rules; remove some")
        row = RuleRow(user, f"rule_{os.urandom(_ID_BYTES).hex()}", text, now_s)
        try:
            self._db.execute("INSERT INTO egress_rules VALUES (?, ?, ?, ?)", row)
        except sqlite3.IntegrityError:
            raise VaultRefusal("no such user") from None
        return row, True

    def remove(self, user: str, rule_id: str) -> bool:
        """Whether there was one."""
        done = self._db.execute("DELETE FROM egress_rules WHERE user = ? AND rule_id = ?", (user, rule_id))
        return done.rowcount == 1

    def of(self, user: str) -> list[RuleRow]:
        """A user's, the oldest first."""
        found = self._db.execute(
            "SELECT user, rule_id, rule, created_s FROM egress_rules"
            " WHERE user = ? ORDER BY created_s, rowid",
            (user,),
        )
        return [RuleRow(*row) for row in found]

    def all(self) -> list[RuleRow]:
        """Everybody's."""
        found = self._db.execute("SELECT user, rule_id, rule, created_s FROM egress_rules")
        return [RuleRow(*row) for row in found]
