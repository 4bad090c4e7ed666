"""Users' own egress rules in ``_keys/vault.db``: no secret, but nobody else's to change."""

import os
import sqlite3

import msgspec

from core.config import EgressRule, path_fault
from core.egress.rule_messages import KeptRule
from core.vault.errors import VaultRefusal

_MAX_PER_USER = 100
_ID_BYTES = 4
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(EgressRule).decode


class RuleStore:
    """The table, on the vault's own connection: one thread at a time. Raises sqlite3.Error."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, user: str, rule: EgressRule, now_s: int) -> tuple[str, bool]:
        """Keep one: its id, and whether it is new. Raises VaultRefusal."""
        if fault := path_fault(rule.path):
            raise VaultRefusal(f"path: {fault}")
        if not rule.methods:
            raise VaultRefusal("methods: name at least one")
        text = _encode(rule).decode()
        found = self._db.execute(
            "SELECT rule_id FROM egress_rules WHERE user = ? AND rule = ?", (user, text)
        ).fetchone()
        if found is not None:
            return str(found[0]), False
        (count,) = self._db.execute("SELECT count(*) FROM egress_rules WHERE user = ?", (user,)).fetchone()
        if count >= _MAX_PER_USER:
            raise VaultRefusal(f"a user has at most {_MAX_PER_USER} rules; remove some")
        rule_id = f"rule_{os.urandom(_ID_BYTES).hex()}"
        try:
            self._db.execute("INSERT INTO egress_rules VALUES (?, ?, ?, ?)", (user, rule_id, text, now_s))
        except sqlite3.IntegrityError:
            raise VaultRefusal("no such user") from None
        return rule_id, True

    def remove(self, user: str, rule_id: str) -> bool:
        """Whether there was one."""
        done = self._db.execute("DELETE FROM egress_rules WHERE user = ? AND rule_id = ?", (user, rule_id))
        return done.rowcount == 1

    def of(self, user: str) -> list[KeptRule]:
        """A user's, the oldest first. Raises VaultRefusal for one that a newer version wrote."""
        rows = self._db.execute(
            "SELECT rule_id, rule, created_s FROM egress_rules WHERE user = ? ORDER BY created_s, rowid",
            (user,),
        ).fetchall()
        try:
            return [KeptRule(rule_id, _decode(text), created_s) for rule_id, text, created_s in rows]
        except msgspec.DecodeError:
            raise VaultRefusal(
                "a rule in the vault is none; remove the user's rules and add them again"
            ) from None
