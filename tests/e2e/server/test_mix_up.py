"""Wrong handles, paths and records, handed over on purpose at each seam: nothing of the other comes out."""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import openai
import pytest

from core.vault.handle import UserHandle
from tests.fakes.hub_process import HubProcess
from tests.fakes.model_server import FakeModelServer
from tests.fakes.real_server import UNATTACKED, Person, RealServer, new_person, real_server, with_model
from tests.fakes.token_book import handle_of


@pytest.fixture(scope="module")
def server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    with real_server(with_model(shared_model.url), before=UNATTACKED) as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return new_person(server, "alice")


@pytest.fixture(scope="module")
def bob(server: RealServer) -> Person:
    return new_person(server, "bob")


@pytest.fixture
def secrets(alice: Person, bob: Person) -> dict[str, str]:
    """What each has said in a session of the same name, and written into a file of the same name."""
    said = {}
    for person in (alice, bob):
        said[person.name] = word = f"of-{person.name}-{uuid4().hex[:12]}"
        person.ask(f"remember {word}", "same")
        person.ask(f"write same.txt: {word}")
    return said


@contextmanager
def tampered(server: RealServer, tamper: Callable[[], None], undo: Callable[[], None]) -> Iterator[None]:
    """The server runs on what was tampered with while it stood still; afterwards all is as before."""
    assert server.stop() == 0
    tamper()
    server.start()
    try:
        yield
    finally:
        assert server.stop() == 0
        undo()
        server.start()


def everything(person: Person, ask: str, session: str = "", model: str = "assistant") -> tuple[str, bool]:
    """All that came back of a turn, and whether it went well."""
    try:
        done = person.ask(ask, session, model)
    except openai.APIError as error:
        return str(error) + str(error.body), False
    return done.text + json.dumps(done.events), True


@pytest.mark.outlives("the module's server is another process afterwards")
def test_databases_that_were_swapped_open_for_neither(
    server: RealServer, alice: Person, bob: Person, secrets: dict[str, str], model: FakeModelServer
) -> None:
    sealed = server.data_dir / "sealed"

    def swap() -> None:
        for one, other in (("alice", "aside"), ("bob", "alice"), ("aside", "bob")):
            (sealed / f"{one}.db").rename(sealed / f"{other}.db")

    with tampered(server, swap, swap):
        seen = len(model.requests)
        for person, other in ((alice, "bob"), (bob, "alice")):
            for agent in ("assistant", "fake"):
                said, went_well = everything(person, "what do you remember?", "same", agent)
                assert not went_well
                assert "did not open" in said
                assert secrets[other] not in said
            # what needs no record goes on
            assert person.ask("run: echo fine").output.startswith("fine")
        assert len(model.requests) == seen
    for person in (alice, bob):
        assert secrets[person.name] in everything(person, "what do you remember?", "same")[0]


@pytest.mark.outlives("the module's server is another process afterwards")
def test_records_copied_into_anothers_database_do_not_open(
    server: RealServer, alice: Person, bob: Person, secrets: dict[str, str], model: FakeModelServer
) -> None:
    sealed = server.data_dir / "sealed"
    backup = server.directory / "backup.db"

    def copy_rows() -> None:
        shutil.copyfile(sealed / "alice.db", backup)
        with closing(sqlite3.connect(sealed / "alice.db")) as database:
            database.execute("ATTACH ? AS bobs", (str(sealed / "bob.db"),))
            database.execute("DELETE FROM messages")
            database.execute("INSERT INTO messages SELECT * FROM bobs.messages")
            database.execute("DELETE FROM sessions")
            database.execute("INSERT INTO sessions SELECT * FROM bobs.sessions")
            database.commit()
        restore_owner(sealed / "alice.db", sealed / "bob.db")

    def undo() -> None:
        for suffix in ("-wal", "-shm"):
            (sealed / f"alice.db{suffix}").unlink(missing_ok=True)
        shutil.copyfile(backup, sealed / "alice.db")

    with tampered(server, copy_rows, undo):
        seen = len(model.requests)
        for agent in ("assistant", "fake"):
            said, went_well = everything(alice, "what do you remember?", "same", agent)
            assert not went_well
            assert "did not open" in said
            assert secrets["bob"] not in said
        assert len(model.requests) == seen
        assert secrets["bob"] in everything(bob, "what do you remember?", "same")[0]
    assert secrets["alice"] in everything(alice, "what do you remember?", "same")[0]


def restore_owner(path: Path, like: Path) -> None:
    info = like.stat()
    os.chown(path, info.st_uid, info.st_gid)


@pytest.mark.outlives("the module's server is another process afterwards")
@pytest.mark.skipif(os.geteuid() != 0, reason="host uids are apart only under root")
def test_host_uids_that_were_swapped_open_no_home(
    server: RealServer, alice: Person, bob: Person, secrets: dict[str, str]
) -> None:
    path = server.data_dir / "_system" / "core.db"

    def swap() -> None:
        with closing(sqlite3.connect(path)) as database:
            uids = dict(database.execute("SELECT name, host_uid FROM users WHERE name IN ('alice', 'bob')"))
            for name, uid in (("alice", 1), ("bob", uids["alice"]), ("alice", uids["bob"])):
                database.execute("UPDATE users SET host_uid = ? WHERE name = ?", (uid, name))
            database.commit()

    with tampered(server, swap, swap):
        for person, other in ((alice, "bob"), (bob, "alice")):
            said, went_well = everything(person, "read same.txt")
            assert not went_well
            assert secrets[other] not in said
            assert secrets[person.name] not in said
    for person in (alice, bob):
        assert secrets[person.name] in everything(person, "read same.txt")[0]


@pytest.mark.outlives("the module's server is another process afterwards")
def test_a_home_that_is_a_link_to_anothers_is_not_mounted(
    server: RealServer, alice: Person, bob: Person, secrets: dict[str, str]
) -> None:
    aside = alice.home.with_name("aside")

    def link() -> None:
        alice.home.rename(aside)
        alice.home.symlink_to(bob.home)

    def undo() -> None:
        alice.home.unlink()
        aside.rename(alice.home)

    with tampered(server, link, undo):
        said, went_well = everything(alice, "read same.txt")
        assert not went_well
        assert "could not be started" in said
        assert secrets["bob"] not in said
        assert secrets["bob"] in everything(bob, "read same.txt")[0]
    assert secrets["alice"] in everything(alice, "read same.txt")[0]


# ---- the hub, with the real store below it --------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    process = HubProcess(tmp_path)
    yield process
    process.close()


def talk(hub: HubProcess, token: str, text: str) -> Any:
    with openai.OpenAI(base_url=f"{hub.url}/v1", api_key=token, max_retries=0) as client:
        return client.chat.completions.create(
            model="assistant",
            messages=[{"role": "user", "content": text}],
            extra_headers={"X-Certosa-Session": "same"},
        )


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_a_verifier_that_mixes_names_and_keys_opens_nothing(hub: HubProcess, name: str) -> None:
    talk(hub, "token-bob", "the word of bob")
    talk(hub, "token-alice", "the word of alice")
    started = len(hub.turns.turns)
    other = {"alice": "bob", "bob": "alice"}[name]
    # a handle of one name that carries the other's key
    hub.book.handles["alice"] = UserHandle(name, hashlib.sha256(other.encode()).digest())
    with pytest.raises(openai.InternalServerError) as raised:
        talk(hub, "token-alice", "what did I say?")
    assert "did not open" in raised.value.message
    assert "the word" not in str(raised.value.body)
    assert len(hub.turns.turns) == started
    hub.book.handles["alice"] = handle_of("alice")
    assert talk(hub, "token-alice", "again").choices[0].message.content == "Hello alice"


def test_a_turn_reaches_its_user_under_the_handle_that_asked(hub: HubProcess) -> None:
    for user in ("alice", "bob"):
        talk(hub, f"token-{user}", f"the word of {user}")
        played = hub.turns.next()
        assert played.spec.handle.user == user
        assert getattr(played.spec.session, "owner", "") == user
