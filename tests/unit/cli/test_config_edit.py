"""A provider's section comes and goes, and nothing else in the file changes."""

import pytest

from core.cli.config_edit import with_section, without_section
from core.config import parse_config
from core.errors import ConfigError

FILE = """\
# Our server. [providers.fake] in a comment is none.
[server]
log_level = "debug"   # for now

[providers.one]
# the old one
base_url = "http://one/v1"
users = [
  "alice",
]

# The big one, ask Bob.
[providers."two.b"]
base_url = "http://two/v1"

[hub]  # the front
port = 9000
"""
SETTINGS = {"kind": "openai", "base_url": "http://new/v1", "users": ["alice"]}


def test_a_section_is_put_at_the_end_and_all_before_it_stays() -> None:
    edited = with_section(FILE, "f", "providers", "new", SETTINGS)
    assert edited.startswith(FILE)
    section = parse_config(edited).providers["new"]
    assert (section.base_url, section.users) == ("http://new/v1", ("alice",))


@pytest.mark.parametrize("text", ["", "[hub]\nport = 1", "[hub]\nport = 1\n", "# only this"])
def test_any_end_of_a_file_will_do_and_removing_gives_it_back(text: str) -> None:
    edited = with_section(text, "f", "providers", "a.b:c", SETTINGS)
    assert "a.b:c" in parse_config(edited).providers
    assert without_section(edited, "f", "providers", "a.b:c").strip() == text.strip()


def test_a_section_is_taken_out_with_its_comments_and_others_keep_theirs() -> None:
    edited = without_section(FILE, "f", "providers", "one")
    assert "[providers.one]" not in edited
    assert "the old one" not in edited
    assert '\n# The big one, ask Bob.\n[providers."two.b"]' in edited
    assert edited.startswith("# Our server.")
    edited = without_section(FILE, "f", "providers", "two.b")
    assert "[hub]  # the front\nport = 9000\n" in edited
    assert "# the old one" in edited


def test_a_part_of_a_provider_in_a_section_of_its_own_goes_too() -> None:
    text = '[providers]\n[providers.a]\nbase_url = "http://a/v1"\n[hub]\nport = 1\n'
    assert without_section(text, "f", "providers", "a") == "[providers]\n[hub]\nport = 1\n"


@pytest.mark.parametrize("name", ["one", "two.b"])
def test_what_is_there_already_is_not_put_in_twice(name: str) -> None:
    with pytest.raises(ConfigError, match="there is a provider"):
        with_section(FILE, "f", "providers", name, SETTINGS)


@pytest.mark.parametrize("name", ["", "_x", "a b", 'x"]\n[hub]\nport=1\n["y', "builtin", "x]"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        with_section(FILE, "f", "providers", name, SETTINGS)


def test_settings_that_are_wrong_are_refused_by_key() -> None:
    with pytest.raises(ConfigError, match="base_url"):
        with_section(FILE, "f", "providers", "new", {"base_url": "ftp://x"})
    with pytest.raises(ConfigError, match="fallbacks"):
        with_section(FILE, "f", "providers", "new", {**SETTINGS, "fallbacks": ["gone/m"]})


@pytest.mark.parametrize(
    "text",
    [
        '[agent]\nprovider = "one"\n',
        '[providers.a]\nbase_url = "http://a/v1"\nfallbacks = ["one/m"]\n',
    ],
    ids=["agent", "fallback"],
)
def test_what_something_else_still_names_stays(text: str) -> None:
    with pytest.raises(ConfigError, match="one"):
        without_section(text + '[providers.one]\nbase_url = "http://one/v1"\n', "f", "providers", "one")


@pytest.mark.parametrize(
    "text",
    [
        'providers = {one = {base_url = "http://one/v1"}}\n',
        'providers.one.base_url = "http://one/v1"\n',
        '[providers]\none = {base_url = "http://one/v1"}\n',
        '[agent]\nprompt = """\n[providers.one]\n"""\n[providers.one]\nbase_url = "http://one/v1"\n',
    ],
    ids=["inline", "dotted", "table", "string"],
)
def test_what_cannot_be_taken_out_by_lines_is_refused_rather_than_damaged(text: str) -> None:
    with pytest.raises(ConfigError):
        without_section(text, "f", "providers", "one")


def test_a_file_that_is_wrong_is_not_touched() -> None:
    with pytest.raises(ConfigError, match=r"f:1: hub\.prot"):
        with_section("hub.prot = 1", "f", "providers", "new", SETTINGS)
    with pytest.raises(ConfigError, match="there is no provider new"):
        without_section(FILE, "f", "providers", "new")
