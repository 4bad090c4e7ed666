"""What may be marked `ask`, and what is refused with its line."""

import pytest

from core.config import parse_config
from core.errors import ConfigError


@pytest.mark.parametrize(
    "verb", ["session.load", "session.append", "step.begin", "step.end", "log", "approval.ask"]
)
def test_what_every_turn_does_by_itself_cannot_be_asked_about(verb: str) -> None:
    with pytest.raises(ConfigError, match=rf"configuration:2: verbs.{verb}: no turn could do without"):
        parse_config(f"[verbs]\n'{verb}' = 'ask'")
    assert parse_config(f"[verbs]\n'{verb}' = 'off'").verbs == {verb: "off"}


def test_what_is_done_for_an_agent_can_be_asked_about() -> None:
    text = "[verbs]\n'provider.chat' = 'ask'\n[agent]\ntools = ['run_command']\nask = ['run_command']"
    config = parse_config(text)
    assert (config.verbs, config.agent.ask) == ({"provider.chat": "ask"}, ("run_command",))
    assert (config.approvals.expires_s, config.approvals.max_open) == (600.0, 16)


def test_a_tool_to_be_asked_about_that_is_none_of_the_agents_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"configuration:3: agent.ask: 'run_comand' is none of agent.tools"):
        parse_config("[agent]\ntools = ['run_command']\nask = ['run_comand']")
