"""What goes wrong inside a worker, apart from the wire's own faults."""

from jail.wire.errors import CertosaError
from jail.wire.schema import Failure


class WorkerError(CertosaError):
    """The root of the worker's errors."""


class AskFailed(WorkerError):
    """Core closed one of our requests with an error, or did not answer in time.

    Args:
        failure: the code, the sentence for people and the time to wait.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure


class ToolFailed(WorkerError):
    """A tool could not do what it was asked; the text tells the model what to do about it."""
