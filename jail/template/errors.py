"""What goes wrong between a fork and a jail."""

from jail.wire.errors import CertosaError


class BuildError(CertosaError):
    """A jail could not be built; what it says goes to the spawner."""
