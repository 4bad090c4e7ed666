"""[[vault.mount]]: which credentials lie in whose jail, as the operator says it."""

from time import process_time

import pytest

from core.config import MountSection, VaultSection, parse_config
from core.errors import ConfigError
from core.mounts import Mounts
from core.reload import merge_live

ONE = '[[vault.mount]]\ncredential = "signing-key"\nusers = ["ann", "bob"]\n'


def test_nobody_has_any_unless_it_is_said() -> None:
    assert Mounts(parse_config("").vault)("ann") == ()


def test_users_have_theirs_in_order_and_nobody_else_has() -> None:
    mounts = Mounts(parse_config(ONE + '[[vault.mount]]\ncredential = "age"\nusers = ["ann"]').vault)

    assert (mounts("ann"), mounts("bob"), mounts("eve")) == (("age", "signing-key"), ("signing-key",), ())


def test_one_that_is_said_twice_is_there_once() -> None:
    assert Mounts(parse_config(ONE + ONE).vault)("ann") == ("signing-key",)


def _mount(credential: str, users: str) -> str:
    return f'[[vault.mount]]\ncredential = "{credential}"\nusers = {users}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_mount("k", "[]"), "vault.mount.*users"),
        ('[[vault.mount]]\ncredential = "k"', "users"),
        ('[[vault.mount]]\nusers = ["ann"]', "credential"),
        (_mount("k", '["*"]'), "vault.mount"),
        (_mount("k", '["Ann"]'), "vault.mount"),
        (_mount("k", '"ann"'), "vault.mount"),
        (_mount("provider:main", '["ann"]'), "vault.mount.*credential"),
        (_mount("oauth:main", '["ann"]'), "vault.mount"),
        (_mount("../x", '["ann"]'), "vault.mount"),
        (_mount("..", '["ann"]'), "vault.mount"),
        (_mount("a/b", '["ann"]'), "vault.mount"),
        (_mount("", '["ann"]'), "vault.mount"),
        (_mount("k" * 65, '["ann"]'), "vault.mount"),
        (_mount("k", '["ann"]') + "\nmode = 511", "unknown field `mode`"),
        ("\n".join(_mount(f"k{n}", '["ann"]') for n in range(9)), "ann has 9 of them; a jail has room for 8"),
    ],
)
def test_what_is_no_mount_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(text)


def test_a_reload_names_those_who_have_others_than_before() -> None:
    mounts = Mounts(parse_config(ONE).vault)

    assert mounts.use(parse_config(_mount("signing-key", '["bob", "eve"]')).vault) == {"ann", "eve"}
    assert (mounts("ann"), mounts("bob"), mounts("eve")) == ((), ("signing-key",), ("signing-key",))
    assert mounts.use(parse_config("").vault) == {"bob", "eve"}


def test_as_many_users_as_may_be_named_hold_nobody_up() -> None:
    users = tuple(f"user{number}" for number in range(10_000))
    section = VaultSection(mount=tuple(MountSection(f"k{number}", users) for number in range(8)))
    began_s = process_time()
    mounts = Mounts(VaultSection())

    assert mounts.use(section) == set(users)
    assert mounts.use(section) == set()
    # what looks through all users for each of them takes a minute, on the loops of three processes
    assert process_time() - began_s < 5


def test_they_count_at_a_reload_and_the_master_keys_place_does_not() -> None:
    new = parse_config('[vault]\nmaster_key = "/elsewhere"\n' + ONE)

    merged, changed, later = merge_live(parse_config(""), new)

    assert (merged.vault.mount, merged.vault.master_key) == (new.vault.mount, "")
    assert (changed, later) == (["vault.mount"], ["vault.master_key"])
