"""Made-up users of a server of one's own, whose model speaks at a set pace."""

from collections.abc import Mapping

from core.capacity.pace import Pace
from core.cli.demo_server import DemoServer

CONFIG = """\
[providers.pace]
base_url = "http://127.0.0.1:{port}/v1"
max_streams = 4000
[agent]
provider = "pace"
model = "pace-100-10"
"""
"""Sections of the server's configuration; ``port`` is the model server's."""

_AGENT = 'provider = "pace"\nmodel = "{model}"\n'


def add_person(server: DemoServer, name: str, agents: Mapping[str, Pace]) -> str:
    """Add a user with agents; returns a token."""
    server.admin.call("POST", "/v1/users", {"name": name})
    made = server.admin.call("POST", f"/v1/users/{name}/tokens", {"label": name})
    directory = server.data_dir / "users" / name / "agents"
    for agent, pace in agents.items():
        (directory / f"{agent}.toml").write_text(_AGENT.format(model=pace.model))
    return str(made["token"])
