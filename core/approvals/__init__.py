"""What a person is asked before a tool or a verb acts: kept with their sessions, answered by them alone."""

from core.approvals.book import Book
from core.approvals.desk import AlreadyDecided, ApprovalDesk, NoSuchApproval

__all__ = ["AlreadyDecided", "ApprovalDesk", "Book", "NoSuchApproval"]
