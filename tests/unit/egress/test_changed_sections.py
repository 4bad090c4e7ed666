"""What a reload changed of providers is noted, by name and never by what it says."""

from core.config import Config, parse_config
from core.egress.accounts import changed_sections

ONE = '[providers.one]\nbase_url = "https://one.example/v1"\n'
TWO = '[providers.two]\nbase_url = "https://two.example/v1"\n'
ACME = (
    '[oauth.acme]\nclient_id = "c"\ntoken_url = "https://a.example/t"\ndevice_url = "https://a.example/d"\n'
    'hosts = ["api.a.example"]\n'
)


def test_added_changed_and_removed_ones_are_told_apart() -> None:
    before, after = parse_config(ONE + TWO), parse_config(ONE.replace("/v1", "/v2") + ACME)
    assert [(r.kind, r.outcome, r.on) for r in changed_sections(before, after)] == [
        ("provider_removed", "noted", "two"), ("provider_set", "noted", "one"),
        ("oauth_set", "noted", "acme"),
    ]  # fmt: skip
    assert [(r.kind, r.on) for r in changed_sections(after, Config())] == [
        ("provider_removed", "one"), ("oauth_removed", "acme"),
    ]  # fmt: skip
    assert changed_sections(before, before) == []
