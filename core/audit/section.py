"""What the configuration says of the audit log."""

from typing import Annotated

import msgspec
from msgspec import Meta


class AuditSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[audit]"""

    file_bytes: Annotated[
        int, Meta(ge=64 << 10, le=1 << 30, description="a file that is longer is followed by another")
    ] = 16 << 20
    keep_files: Annotated[int, Meta(ge=2, le=100_000, description="the oldest of more is deleted")] = 64
    lines_per_minute: Annotated[
        int,
        Meta(ge=1, le=100_000, description="of one user and kind; more alike ones are counted in one line"),
    ] = 120
