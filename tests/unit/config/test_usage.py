from decimal import Decimal

import pytest

from core.config import Config, parse_config
from core.errors import ConfigError
from core.ledger.limits import PICO, Limits, Price
from core.ledger.opening import terms_of

RIGHT = """\
[usage]
currency = "EUR"
zone = "Europe/Berlin"
[usage.soft]
tokens = 400_000
[usage.hard]
requests = 0
cost = "2.50"
[providers.acme]
base_url = "http://127.0.0.1:1/v1"
[providers.acme.prices."small-model"]
input = "0.15"
output = "0.000001"
[providers.acme.prices."*"]
input = "3"
output = 15
"""


def test_limits_and_prices_become_whole_numbers() -> None:
    config = parse_config(RIGHT)
    terms = terms_of(config)
    assert terms.soft == Limits(tokens=400_000)
    assert terms.hard == Limits(requests=0, cost=5 * PICO // 2)
    assert terms.prices["acme"] == {"small-model": Price(150_000, 1), "*": Price(3_000_000, 15_000_000)}
    assert config.usage.hard.cost == Decimal("2.50")


def test_without_a_word_there_is_no_limit_and_no_price() -> None:
    terms = terms_of(Config())
    assert (terms.soft, terms.hard, terms.prices, terms.days.zone) == (Limits(), Limits(), {}, "UTC")


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ('zone = "Europe/Berlin"', 'zone = "Mars/Olympus"', ":3: usage.zone"),
        ('zone = "Europe/Berlin"', 'zone = "../../etc/passwd"', ":3: usage.zone"),
        ('currency = "EUR"', 'currency = "euro"', ":2: usage.currency"),
        ("tokens = 400_000", "tokens = -1", ":5: usage.soft.tokens"),
        ("tokens = 400_000", "token = 1", ":5: usage.soft.token: unknown key; did you mean tokens?"),
        ('cost = "2.50"', 'cost = "2.5000001"', ":8: usage.hard.cost"),
        ('cost = "2.50"', 'cost = "-1"', ":8: usage.hard.cost"),
        ('cost = "2.50"', 'cost = "NaN"', ":8: usage.hard.cost"),
        ('input = "0.15"', 'input = "0.1500001"', ":12: providers.acme.prices.small-model.input"),
        ('input = "0.15"', 'input = "1e30"', ":12: providers.acme.prices.small-model.input"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(before: str, after: str, key: str) -> None:
    assert before in RIGHT
    with pytest.raises(ConfigError) as raised:
        parse_config(RIGHT.replace(before, after))
    assert key in str(raised.value)
