"""The days that usage is counted by: from midnight to midnight in the operator's zone."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo


class Days:
    """Pure: times in, days out. Raises zoneinfo.ZoneInfoNotFoundError for a zone that there is not."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self._zone = UTC if zone == "UTC" else ZoneInfo(zone)

    def day(self, now_s: float) -> str:
        """The day of a Unix time, as YYYY-MM-DD."""
        return datetime.fromtimestamp(now_s, self._zone).date().isoformat()

    def before(self, now_s: float, days: int) -> str:
        """The day that many days before."""
        return (datetime.fromtimestamp(now_s, self._zone).date() - timedelta(days=days)).isoformat()

    def resets_at_s(self, now_s: float) -> float:
        """When the day after begins, as Unix time: 23 to 25 hours after this one did."""
        tomorrow = datetime.fromtimestamp(now_s, self._zone).date() + timedelta(days=1)
        return datetime.combine(tomorrow, time(), self._zone).timestamp()

    def told(self, at_s: float) -> str:
        """A time for people, with the zone."""
        return f"{datetime.fromtimestamp(at_s, self._zone):%Y-%m-%d %H:%M} {self.zone}"
