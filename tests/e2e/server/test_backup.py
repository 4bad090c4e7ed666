"""A backup of the server while it runs, restored elsewhere and served from there."""

from core.cli import main
from tests.fakes.real_server import UNATTACKED, Person, RealServer, own_directory

PASSPHRASE = "correct horse battery staple"


def test_a_server_restored_from_a_backup_of_a_running_one_knows_its_users(
    server: RealServer, alice: Person
) -> None:
    alice.ask("write keep.txt: kept words", session="before")
    with own_directory() as directory:
        secret, file = directory / "passphrase", directory / "certosa.backup"
        secret.touch(mode=0o600)
        secret.write_text(PASSPHRASE)
        common = ["--config", str(server.config_path), "--data-dir"]
        words = [str(file), "--passphrase-file", str(secret), "--json"]
        assert main([*common, str(server.data_dir), "backup", *words]) == 0
        alice.ask("write keep.txt: newer words", session="after")
        restored = RealServer(directory, {}, before=UNATTACKED)
        assert main([*common, str(restored.data_dir), "restore", *words]) == 0
        try:
            restored.start()
            again = Person(restored, "alice", alice.token)
            assert "kept words" in again.ask("read keep.txt").output
            with again.client() as client:
                listed = client.get("/sessions", cast_to=object)
            assert "before" in str(listed)
            assert "after" not in str(listed)
        finally:
            restored.stop()
