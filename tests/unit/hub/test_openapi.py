"""The published description of the API: what the code says, and what lies in the repository."""

import json
from pathlib import Path

from core.hub.openapi import document, encoded_document

KEPT = Path(__file__).resolve().parents[3] / "docs" / "openapi.json"


def test_the_kept_document_is_the_codes() -> None:
    assert KEPT.read_bytes() == encoded_document(), "run scripts/openapi, and look at what has changed"


def test_every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() -> None:
    made = document()
    names = [operation["operationId"] for path in made["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) > 20
    text = encoded_document().decode()
    for name in made["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text, f"nobody refers to {name}"
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.partition('"')[0] in made["components"]["schemas"]
    assert "\\\\Z" not in text
    assert json.loads(text) == json.loads(json.dumps(made))
