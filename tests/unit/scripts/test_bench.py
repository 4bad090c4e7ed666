import json

import pytest

from scripts.benches.dispatch import line, main
from scripts.benches.result import Result, median_and_p99


def test_a_result_is_one_line_with_its_floor_and_ratio() -> None:
    result = Result("hop", {"cpus": 2}, 123.456789, 200.0, "us", 61.728)
    assert json.loads(line(result)) == {
        "bench": "hop", "cpus": 2, "median": 123.5, "p99": 200.0, "unit": "us", "floor": 61.73,
        "ratio": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([3.0], (3.0, 3.0)),
        ([4.0, 1.0, 2.0, 3.0], (2.5, 4.0)),
        ([float(n) for n in range(1000)], (499.5, 990.0)),
    ],
)
def test_median_and_p99(samples: list[float], expected: tuple[float, float]) -> None:
    assert median_and_p99(samples) == expected


def test_a_benchmark_that_there_is_not_ends_with_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nonsense"])
    assert ended.value.code == 2
    assert "no benchmark nonsense" in capsys.readouterr().err
