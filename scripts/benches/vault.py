"""Sealing and opening a 4 KB record under a user's handle, beside AES-256-GCM alone on the same bytes.

The floor is one cipher object with a nonce made beforehand; what is added is the nonce's randomness, the
associated data and the copy. One thread, no disk.
"""

import os
import time
from collections.abc import Callable, Iterator

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from core.vault.handle import UserHandle
from scripts.benches.result import Result, median_and_p99

_RECORD_BYTES = 4_096
_SAMPLES = 200
_IN_A_SAMPLE = 50
_PLACE = "messages/session/1"


def measure() -> Iterator[Result]:
    """Seal, then open."""
    key, data, nonce = os.urandom(32), os.urandom(_RECORD_BYTES), os.urandom(12)
    handle, bare = UserHandle("bench", key), AESGCM(key)
    sealed, encrypted = handle.seal(_PLACE, data), bare.encrypt(nonce, data, None)
    yield _compare("seal", lambda: handle.seal(_PLACE, data), lambda: bare.encrypt(nonce, data, None))
    yield _compare("open", lambda: handle.open(_PLACE, sealed), lambda: bare.decrypt(nonce, encrypted, None))


def _compare(what: str, ours: Callable[[], bytes], floor: Callable[[], bytes]) -> Result:
    took: dict[str, list[float]] = {"ours": [], "floor": []}
    for _ in range(_SAMPLES):
        for name, act in (("floor", floor), ("ours", ours)):
            began_s = time.perf_counter()
            for _ in range(_IN_A_SAMPLE):
                act()
            took[name].append((time.perf_counter() - began_s) / _IN_A_SAMPLE * 1e6)
    median, p99 = median_and_p99(took["ours"])
    varied: dict[str, str | int | float] = {"act": what, "bytes": _RECORD_BYTES, "n": _SAMPLES}
    return Result("vault", varied, median, p99, "us", median_and_p99(took["floor"])[0])
