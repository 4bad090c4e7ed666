"""The published descriptions of the APIs: what the code says, and what lies in the repository."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from core.hub.admin_requests import USER_NAMES
from core.hub.errors import HubError
from core.hub.openapi import ADMIN, PUBLIC, document, encoded_document
from core.hub.openapi.route import Api
from core.hub.usage import parse_changes
from core.ledger.section import MAX_COST, MOST
from core.users import UserNameError, check_user_id

DOCS = Path(__file__).resolve().parents[3] / "docs"
both = pytest.mark.parametrize(
    ("api", "kept"), [(PUBLIC, "openapi.json"), (ADMIN, "admin-openapi.json")], ids=["public", "admin"]
)


@both
def test_the_kept_document_is_the_codes(api: Api, kept: str) -> None:
    assert (DOCS / kept).read_bytes() == encoded_document(api), "run scripts/openapi, and look at the changes"


@both
def test_every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own(
    api: Api, kept: str
) -> None:
    made = document(api)
    names = [operation["operationId"] for path in made["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) > 20
    text = encoded_document(api).decode()
    for name in made["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text, f"nobody refers to {name}"
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.partition('"')[0] in made["components"]["schemas"]
    assert "\\\\Z" not in text
    assert json.loads(text) == json.loads(json.dumps(made))


@pytest.mark.parametrize("name", ["a", "0-_", "z" * 32, "", "_a", "-a", "A", "é", "z" * 33, "a\n", "a b"])
def test_what_is_published_of_users_names_is_what_is_read(name: str) -> None:
    try:
        good = check_user_id(name) == name
    except UserNameError:
        good = False
    # as JSON Schema reads it, where $ is the very end
    assert bool(re.search(USER_NAMES["pattern"].replace("$", r"\Z"), name)) == good


@pytest.mark.parametrize(
    ("limit", "good"),
    [
        ({"tokens": 0}, True), ({"bytes": MOST}, True), ({"tokens": MOST + 1}, False),
        ({"requests": -1}, False), ({"cost": f"{MAX_COST}.0"}, True), ({"cost": f"{MAX_COST}.1"}, False),
        ({"requests": "default"}, True), ({"requests": "none"}, False), ({"tokens": None}, True),
        ({"cost": 3}, True), ({"cost": "0.000001"}, True), ({"cost": "0.0000001"}, False),
        ({"cost": int(MAX_COST)}, True), ({"cost": int(MAX_COST) + 1}, False), ({"cost": "-1"}, False),
        ({"words": 3}, False),
    ],
)  # fmt: skip
def test_what_is_published_of_limits_is_what_is_read(limit: dict[str, Any], good: bool) -> None:
    schemas = document(ADMIN)["components"]["schemas"]
    reader = jsonschema_rs.validator_for(schemas["OwnLimits"])
    assert reader.is_valid(limit) == good
    body = json.dumps({"hard": limit}).encode()
    with nullcontext() if good else pytest.raises(HubError, match=next(iter(limit))):
        parse_changes(body)


@both
def test_every_operation_says_what_it_wants_of_who_asks_and_answers_who_has_no_token(
    api: Api, kept: str
) -> None:
    made = document(api)
    assert set(made["components"]["securitySchemes"]) == {"bearer", "apiKey"}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            wants = [scheme for scheme in operation.get("security", made["security"]) if scheme]
            assert ("401" in operation["responses"]) == bool(wants), (method, path)
