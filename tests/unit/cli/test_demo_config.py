"""The configuration of a demonstration's server, with what a test adds to it."""

import tomllib

from core.cli.demo_server import join_sections


def test_sections_may_be_begun_in_one_text_and_gone_on_with_in_another() -> None:
    base = '[server]\ndata_dir = "d"\n[hub]\nport = 1\n'
    more = 'top = 1\n[server]\ncore_cpus = "one"\n\n[providers.a]\nmodel = "m"\n[hub]\nmax_turns = 2\n'
    assert tomllib.loads(join_sections(base, more)) == {
        "top": 1,
        "server": {"data_dir": "d", "core_cpus": "one"},
        "hub": {"port": 1, "max_turns": 2},
        "providers": {"a": {"model": "m"}},
    }


def test_lists_of_sections_stay_lists() -> None:
    base = "[a]\nx = 1\n[[a.b]]\ny = 1\n[[a.b]]\ny = 2\n"
    more = "[a]\nz = 3\n[[a.c]]\ny = 3\n"
    assert tomllib.loads(join_sections(base, more)) == {
        "a": {"x": 1, "z": 3, "b": [{"y": 1}, {"y": 2}], "c": [{"y": 3}]}
    }
