"""schemathesis over the whole of both APIs of a real server: no 5xx, and nothing undocumented.

Each run is the same; CONTRIBUTING.md has the command for a longer one that is not.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.hub.openapi import ADMIN, PUBLIC
from core.hub.openapi.route import Api
from tests.fakes.model_server import FakeModelServer
from tests.fakes.plain_client import PlainClient
from tests.fakes.real_server import LIMIT_S, UNATTACKED, RealServer, real_server, with_model

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# it does not end by itself; the tests of what is live read it
ENDLESS = "/v1/sessions/{id}/events"
LOOK = {PUBLIC.prefix: "/v1/models", ADMIN.prefix: "/admin/v1/users"}
# one method that is not there stands for all
COMMON = """\
[phases.coverage]
unexpected-methods = ["TRACE"]

"""
# half of all requests would go to these two, whose fields are tried in tests of their own: a sample does here
AS_A_USER = """\
[[operations]]
include-path = "/v1/chat/completions"
generation.max-examples = 20
phases.coverage.generation.mode = "positive"

[[operations]]
include-path = "/v1/messages"
generation.max-examples = 20
phases.coverage.enabled = false
"""
# half of what an administrator asks about is there, and the token that they have is not for them to revoke
NAMES = [f"ruled-{number}" for number in range(6)]
AS_AN_ADMINISTRATOR = """\
[dictionaries]
names = {{ values = {names} }}

[[operations]]
include-path-regex = "^/admin/v1/(users|pool)/.name."
parameters = {{ "path.name" = {{ dictionary = "names", probability = 0.5 }} }}

[[operations]]
include-path = "/admin/v1/tokens/{{token_id}}"
parameters = {{ "path.token_id" = "{token_id}" }}
"""


@pytest.fixture(scope="module")
def server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    """One of these tests' own: an administrator without sense deletes whoever is there."""
    with real_server(with_model(shared_model.url), before=UNATTACKED) as running:
        yield running


def roam(url: str, api: Api, token: str, directory: Path, settings: str) -> None:
    """Have schemathesis try every operation, from a directory; it is let in to the end."""
    directory.joinpath("schemathesis.toml").write_text(COMMON + settings)
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"), "run", url + api.path,
            "-H", f"Authorization: Bearer {token}", "--checks", CHECKS,
            # a second token beside ours would be refused, and nothing else be tried
            "--generation-with-security-parameters", "false",
            "--phases", "examples,coverage,fuzzing", "--max-examples", "2", "--generation-deterministic",
            "--no-shrink", "--no-color", "--continue-on-failure", "--suppress-health-check", "all",
            "--warnings", "off", "--exclude-path", ENDLESS,
        ],
        cwd=directory, capture_output=True, text=True, timeout=4 * LIMIT_S, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(directory)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    tried = re.search(r"^ *Tested: ([0-9]+)$", done.stdout, re.MULTILINE)
    assert tried is not None, done.stdout[-2_000:]
    # the document itself is what it began with
    assert int(tried[1]) == len([route for route in api.routes if route.path not in (ENDLESS, api.path)])
    assert PlainClient(url, {"Authorization": f"Bearer {token}"}).ask("GET", LOOK[api.prefix]).status == 200


@pytest.mark.slow
def test_schemathesis_as_a_user_finds_no_5xx_and_nothing_undocumented(
    server: RealServer, tmp_path: Path
) -> None:
    roam(server.url, PUBLIC, server.new_user("roamer").token, tmp_path, AS_A_USER)


@pytest.mark.slow
def test_schemathesis_as_an_administrator_finds_no_5xx_and_nothing_undocumented(
    server: RealServer, tmp_path: Path
) -> None:
    token = server.admin.call("POST", "/v1/admin-tokens", {"label": "roaming"})["token"]
    for name in NAMES:
        server.new_user(name)
    settings = AS_AN_ADMINISTRATOR.format(names=NAMES, token_id=server.new_token(NAMES[0])["token_id"])
    try:
        roam(f"http://127.0.0.1:{server.admin_port}", ADMIN, token, tmp_path, settings)
    finally:
        server.admin.call("POST", "/v1/pool/open")
