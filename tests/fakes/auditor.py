"""An auditor that keeps what it is told."""

from core.audit.records import Record


class Notes:
    """Implements core.audit.records.Auditor."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def note(self, record: Record) -> None:
        """Keep it."""
        self.records.append(record)

    async def act(self, record: Record) -> None:
        """Keep it."""
        self.records.append(record)

    def of(self, kind: str) -> list[Record]:
        """Those of a kind."""
        return [record for record in self.records if record.kind == kind]

    @property
    def said(self) -> list[tuple[str, str]]:
        """Each one's kind and outcome."""
        return [(record.kind, record.outcome) for record in self.records]
