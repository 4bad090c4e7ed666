"""What a configuration may say of providers, and what is refused by key and line."""

import pytest

from core.config import parse_config
from core.errors import ConfigError

TWO = """\
[providers.main]
base_url = "http://127.0.0.1:1/v1"
{more}
[providers.spare]
base_url = "http://127.0.0.1:2/v1"
"""


def test_fallbacks_name_other_providers_and_their_models() -> None:
    config = parse_config(TWO.format(more='fallbacks = ["spare/org/model-2", "builtin/assistant"]'))
    assert config.providers["main"].fallbacks == ("spare/org/model-2", "builtin/assistant")


@pytest.mark.parametrize("at", ["spare", "spare/", "/m", "main/m", "gone/m", ""])
def test_a_fallback_that_leads_nowhere_or_back_is_refused_with_its_line(at: str) -> None:
    with pytest.raises(ConfigError, match=r":3: providers\.main\.fallbacks: "):
        parse_config(TWO.format(more=f'fallbacks = ["{at}"]'))


def test_an_agents_fallbacks_name_providers_too_its_own_as_well() -> None:
    agent = '[agent]\nprovider = "main"\nfallbacks = ["main/m2", "builtin/assistant"]\n'
    assert parse_config(TWO.format(more="") + agent).agent.fallbacks == ("main/m2", "builtin/assistant")
    with pytest.raises(ConfigError, match=r"agent\.fallbacks: 'gone/m' is not"):
        parse_config(TWO.format(more="") + agent.replace("main/m2", "gone/m"))


@pytest.mark.parametrize(
    "line",
    ["retries = 11", "retries = -1", "retry_cap_s = 0", "breaker_failures = 0", "max_streams = 0"],
)
def test_terms_out_of_range_are_refused_with_their_line(line: str) -> None:
    key = line.partition(" ")[0]
    with pytest.raises(ConfigError, match=rf":3: providers\.main\.{key}: "):
        parse_config(TWO.format(more=line))
