"""Who may start a turn."""

import asyncio

import pytest

from core.config import HubSection
from core.hub.admission import Admission
from core.hub.errors import HubError
from core.metrics import Metrics


def test_no_turn_begins_while_the_loop_lags_and_one_does_once_it_keeps_up() -> None:
    async def main() -> None:
        metrics = Metrics()
        admission = Admission(HubSection(max_lag_s=5.0), metrics)
        admission.lag_s = 5.1
        with pytest.raises(HubError) as refused:
            admission.admit("alice")
        assert (refused.value.status, refused.value.code) == (429, "overloaded")
        assert refused.value.headers["Retry-After"] == "5"
        refusals = {"reason": "loop_lag"}
        assert metrics.registry.get_sample_value("certosa_turns_refused_total", refusals) == 1
        admission.lag_s = 4.9
        leave = admission.admit("alice")
        assert admission.running == 1
        leave()
        assert admission.running == 0

    asyncio.run(main())
