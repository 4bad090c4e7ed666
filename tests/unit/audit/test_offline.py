"""A copy of the audit log is checked without its server, by the vault's keys or the log's own."""

import json
import shutil
from pathlib import Path

import pytest

from core.audit.chain import Chain
from core.audit.files import AuditLog
from core.audit.offline import audit_key_of, check_copy, find_copy, read_audit_key
from core.audit.records import Record
from core.cli import main
from core.vault.errors import VaultError
from core.vault.vault import Vault


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a log of several files, whose vault was closed."""
    keys = tmp_path / "data" / "_keys"
    keys.parent.mkdir()
    vault = Vault(keys)
    key, fresh = vault.audit_key()
    log = AuditLog(keys / "audit", Chain(key), fresh, 2_000, 100, lambda: 1_796_212_800.0)
    for number in range(30):
        log.append([("core", Record("token_made", "done", who="uid:0", user=f"user{number}"))])
        log.sync()
    log.close()
    vault.close()
    return keys.parent


def _copied(data: Path, name: str = "copy") -> Path:
    """As one copies it who is not careful with modes."""
    copy = data.parent / name
    shutil.copytree(data, copy)
    for path in copy.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return copy


def test_a_copy_is_checked_wherever_it_lies(data: Path) -> None:
    copy = _copied(data)
    key = audit_key_of(copy / "_keys" / "vault.db", copy / "_keys" / "master.key")
    for path in (copy, copy / "_keys", copy / "_keys" / "audit"):
        verdict = check_copy(find_copy(path), key)
        assert (verdict.faults, verdict.files > 2, verdict.lines > 30) == ((), True, True)
    before = {path: path.read_bytes() for path in sorted(copy.rglob("*")) if path.is_file()}
    check_copy(find_copy(copy), key)
    after = {path: path.read_bytes() for path in sorted(copy.rglob("*")) if path.is_file()}
    assert before == after


def test_a_vault_that_is_open_elsewhere_gives_the_same_key(data: Path) -> None:
    vault = Vault(data / "_keys")
    try:
        key, _ = vault.audit_key()
        assert audit_key_of(data / "_keys" / "vault.db", data / "_keys" / "master.key") == key
    finally:
        vault.close()


def test_one_changed_byte_of_a_copy_is_found(data: Path) -> None:
    copy = _copied(data)
    key = audit_key_of(copy / "_keys" / "vault.db", copy / "_keys" / "master.key")
    file = copy / "_keys" / "audit" / "audit-00000002.jsonl"
    assert check_copy(find_copy(file), key).faults == ()
    file.write_bytes(file.read_bytes().replace(b"user1", b"user2", 1))
    for path in (copy, file):
        (fault,) = check_copy(find_copy(path), key).faults
        assert "audit-00000002.jsonl" in fault
    file.unlink()
    assert any("missing" in fault for fault in check_copy(find_copy(copy), key).faults)


def test_another_key_finds_nothing_right(data: Path) -> None:
    assert check_copy(find_copy(data), bytes(32)).faults != ()
    other = _copied(data, "other")
    (other / "_keys" / "master.key").write_bytes(bytes(32))
    with pytest.raises(VaultError, match="did not make"):
        audit_key_of(other / "_keys" / "vault.db", other / "_keys" / "master.key")


@pytest.mark.parametrize("text", ["", "abc", "zz" * 32, "00" * 31, "00" * 33])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(VaultError, match="is not an audit log's key"):
        read_audit_key(path)


def test_what_is_no_vault_and_no_log_is_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(VaultError, match="no audit log"):
        find_copy(tmp_path)
    (tmp_path / "vault.db").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(VaultError, match="is not a vault"):
        audit_key_of(tmp_path / "vault.db", data / "_keys" / "master.key")
    with pytest.raises(VaultError, match="is missing"):
        audit_key_of(tmp_path / "none.db", data / "_keys" / "master.key")
    with pytest.raises(VaultError, match="--master-key"):
        audit_key_of(data / "_keys" / "vault.db", tmp_path / "none.key")


def test_the_commands_check_a_copy_by_its_keys_or_by_the_logs_own(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, place = _copied(data), ["--data-dir", str(data)]
    assert main([*place, "audit", "verify", str(copy), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["part"]) == (True, False)
    key = data.parent / "log.key"
    assert main([*place, "audit", "key", str(key)]) == 0
    assert key.stat().st_mode & 0o077 == 0
    assert main([*place, "audit", "key", str(key)]) == 1  # nothing is replaced
    (copy / "_keys" / "vault.db").unlink()
    log = copy / "_keys" / "audit"
    assert main(["audit", "verify", str(log), "--key", str(key)]) == 0
    assert main(["audit", "verify", str(log)]) == 1
    assert "vault.db" in capsys.readouterr().err
    file = log / "audit-00000001.jsonl"
    assert main(["audit", "verify", str(file)]) == 2
    vault, master = data / "_keys" / "vault.db", data / "_keys" / "master.key"
    line = ["audit", "verify", str(file), "--vault", str(vault), "--master-key", str(master)]
    assert main(line) == 0
    assert "does not say what came before" in capsys.readouterr().out
    file.write_bytes(file.read_bytes().replace(b"user0", b"user9", 1))
    assert main(line) == 1
    assert "audit-00000001.jsonl:2" in capsys.readouterr().err
