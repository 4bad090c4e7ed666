"""A vault of two users."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.egress.messages import AddUser
from core.vault.vault import Vault


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    vault = Vault(tmp_path / "_keys", wall_s=lambda: 1_000.0)
    for user in ("alice", "bob"):
        vault.answer(AddUser(1, user))
    yield vault
    vault.close()
