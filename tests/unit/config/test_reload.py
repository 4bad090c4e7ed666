"""What of a new configuration counts at once, and what waits for a restart."""

import os
from pathlib import Path

import pytest

from core.config import Config, parse_config
from core.reload import Reloader, merge_live
from jail.host.messages import HostError


def _parse(text: str) -> Config:
    return parse_config(text, "file")


def test_what_counts_at_once_is_taken_and_the_rest_waits() -> None:
    old = _parse("[hub]\nport = 1\nmax_turns = 10\n[verbs]\n'mcp.call' = 'off'")
    new = _parse(
        "[hub]\nport = 2\nmax_turns = 20\n[server]\nlog_level = 'debug'\ngrace_s = 99\n"
        "[providers.local]\nbase_url = 'http://x/v1'\nusers = ['alice']\n[agent]\nprovider = 'local'\n"
        "[access]\norigins = ['https://a.example']\n[[egress.allow]]\nhost = 'b.example'"
    )
    merged, changed, later = merge_live(old, new)
    assert (merged.hub.port, merged.hub.max_turns) == (1, 20)
    assert (merged.server.log_level, merged.server.grace_s) == ("debug", 10.0)
    assert merged.providers == new.providers
    assert (merged.agent, merged.access, merged.verbs) == (new.agent, new.access, {})
    assert merged.egress == new.egress
    assert later == ["hub.port", "server.grace_s"]
    assert {"access.origins", "agent.provider", "hub.max_turns", "server.log_level"} < set(changed)
    assert merge_live(merged, merged) == (merged, [], [])


def test_certificates_count_at_once_where_there_were_some_before() -> None:
    plain = Config()
    one = _parse('[hub]\ntls_certificate = "/a"\ntls_key = "/b"')
    other = _parse('[hub]\ntls_certificate = "/c"\ntls_key = "/d"')
    merged, changed, later = merge_live(one, other)
    assert (merged, later) == (other, [])
    assert changed == ["hub.tls_certificate", "hub.tls_key"]
    for old, new in ((plain, one), (one, plain)):
        merged, changed, later = merge_live(old, new)
        assert (merged, changed) == (old, [])
        assert later == ["hub.tls_certificate", "hub.tls_key"]


def test_a_bad_file_changes_nothing_and_the_next_good_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "certosa.toml"
    opened: list[Config] = []

    def open_files(config: Config) -> dict[str, int]:
        opened.append(config)
        return {}

    reload = Reloader(Config(), "", path, open_files)
    path.write_text("[hub]\nmax_turns = 5\nmax_trns = 6")
    with pytest.raises(HostError, match=r"certosa\.toml:3: hub\.max_trns: unknown key"):
        reload()
    assert opened == []
    path.write_text("[hub]\nmax_turns = 5\nport = 9")
    fresh = reload()
    try:
        assert fresh.log == {"changed": ["hub.max_turns"], "after_restart": ["hub.port"]}
        assert fresh.check() == ""
        assert fresh.core["config"] != fresh.egress["config"], "each reads from its own place"
        assert b'"max_turns":5' in os.pread(fresh.core["config"], 1 << 20, 0)
    finally:
        fresh.close()


def test_a_file_that_looks_cut_short_is_taken_when_it_is_asked_for_twice(tmp_path: Path) -> None:
    whole = "[hub]\nmax_turns = 5\n\n[providers.local]\nbase_url = 'http://x/v1'\n"
    cut = whole.partition("[prov")[0]
    path = tmp_path / "certosa.toml"
    reload = Reloader(_parse(whole), whole, path, lambda config: {})
    for text in (cut, "", cut):  # never twice the same
        path.write_text(text)
        with pytest.raises(HostError, match="send SIGHUP again"):
            reload()
    path.write_text(whole)
    reload().close()
    path.write_text(cut)
    with pytest.raises(HostError, match="send SIGHUP again"):
        reload()
    fresh = reload()
    try:
        assert "providers.local.base_url" in fresh.log["changed"]
        fresh.on_use()
    finally:
        fresh.close()
    reload().close()
