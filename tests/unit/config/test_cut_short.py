"""Files that look as if their writer was not done."""

import tomllib

import pytest

from core.cut_short import cut_short

USED = """# ours
[hub]
max_turns = 10

[providers.local]
base_url = "http://127.0.0.1:1/v1"

[providers.other]
base_url = "http://127.0.0.1:2/v1"

[agent]
provider = "local"
model = "m"
"""


def test_every_beginning_of_a_file_that_parses_is_doubted() -> None:
    doubted = 0
    for size in range(len(USED.rstrip())):
        try:
            tomllib.loads(USED[:size])
        except tomllib.TOMLDecodeError:
            continue
        doubted += 1
        assert cut_short(USED, USED[:size])
    assert doubted > 20


@pytest.mark.parametrize(
    "new",
    [
        USED,
        USED + "\n[usage.hard]\nrequests = 5\n",
        USED.replace("10", "1"),
        USED.replace("# ours\n", ""),
        USED.replace('[providers.other]\nbase_url = "http://127.0.0.1:2/v1"\n', ""),
        USED.replace('provider = "local"\n', ""),
        USED.replace("local", "another"),
        USED.rstrip("\n") + "\n\n",
    ],
)
def test_what_people_change_in_a_file_is_not(new: str) -> None:
    assert cut_short(USED, new) == ""
    assert cut_short("", new) == ""


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ("\n", "empty"),
        (USED.replace("# ours", "# mine").rstrip(), "last line"),
        (USED.replace("providers.", "oauth."), "none of the providers"),
        (USED.replace("10", "20").partition("[providers.other]")[0], "providers.other"),
        (USED.replace("10", "20").partition("[providers.local]")[0], "none of the providers"),
    ],
)
def test_what_a_change_and_half_a_file_look_like_is_doubted(new: str, why: str) -> None:
    assert why in cut_short(USED, new)
