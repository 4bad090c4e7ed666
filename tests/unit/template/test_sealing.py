"""That new objects lie beside each other once all gaps are taken."""

import random

import pytest

from jail.template import sealing


@pytest.mark.parametrize(
    ("places", "row"),
    [
        ([100], 1),
        ([100, 132, 164], 3),
        ([100, 132, 500, 532, 564, 596, 900], 4),
        ([164, 132, 100], 1),
        ([100, 164, 228], 1),
    ],
)
def test_a_row_is_places_each_just_behind_the_one_before(places: list[int], row: int) -> None:
    assert sealing._longest_row(places, 32) == row


def test_after_sealing_new_objects_come_in_a_row_although_many_were_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sealing, "_kept", [])
    blocks = [bytes(100) for _ in range(4_000)]
    random.shuffle(blocks)
    del blocks[1_000:]  # three of four places are gaps, in no order

    sealing.seal()

    assert len(sealing._kept) >= 3_000 - 64
    places = [id(block) for block in [bytes(100) for _ in range(64)]]
    assert sealing._longest_row(places, 144) >= 24
