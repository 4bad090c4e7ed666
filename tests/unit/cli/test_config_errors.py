"""What is wrong in a configuration is named by its key and its line, in tables of one's own names too."""

import pytest

from core.config import parse_config
from core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[providers.one]\nbase_url = "http://x/v1"\n[providers.two]\nbase_url = "ftp://x"\n',
         "c:4: providers.two.base_url: "),
        ('[providers.one]\nbase_url = "http://x/v1"\nidle_s = 0\n', "c:3: providers.one.idle_s: "),
        ('[providers.one]\nkind = "openai"\n', "c:1: providers.one: "),
        ('[providers."a b"]\nbase_url = "http://x/v1"\n', "c:1: providers.a b: "),
        ('[providers]\none = 5\n', "c:2: providers.one: "),
        ('providers = 5\n', "c:1: providers: "),
        ('[verbs]\n"provider.chat" = "maybe"\n', "c:2: verbs.provider.chat: "),
        ('[hub]\nhost = ""\n', "c:2: hub.host: "),
        ('[admin]\n\nport = 70000\n', "c:3: admin.port: "),
    ],
)  # fmt: skip
def test_an_error_names_the_key_and_the_line(text: str, where: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(text, "c")
    assert str(raised.value).startswith(where)


def test_the_same_tables_are_taken_where_they_are_right() -> None:
    config = parse_config(
        '[providers.one]\nbase_url = "http://x/v1"\n[verbs]\n"provider.chat" = "ask"\n[hub]\nhost = "::1"\n'
    )
    assert config.providers["one"].base_url == "http://x/v1"
    assert config.verbs == {"provider.chat": "ask"}
    assert config.hub.host == "::1"
