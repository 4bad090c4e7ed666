"""The provider key file is read whole or refused, and no refusal quotes it."""

import os
import tempfile

import pytest
from structlog.testing import capture_logs

from core.egress.keyfile import parse_provider_keys, read_provider_keys
from core.errors import ConfigError

KEY = "sk-canary-0123456789"


def test_keys_are_found_by_provider() -> None:
    keys = parse_provider_keys(f'acme = "{KEY}"\n"my.host" = "local-key-0000"'.encode(), {"acme", "my.host"})
    assert {name: key.reveal() for name, key in keys.items()} == {
        "acme": KEY,
        "my.host": "local-key-0000",
    }


def test_a_key_for_nobody_and_a_short_one_are_warned_of_without_being_shown() -> None:
    with capture_logs() as logs:
        keys = parse_provider_keys(f'typo = "{KEY}"\nacme = "short"'.encode(), {"acme"})
    assert list(keys) == ["acme"]
    assert [line["event"] for line in logs] == ["provider_key_unused", "provider_key_short"]
    assert KEY not in str(logs)
    assert "short" not in {value for line in logs for value in line.values()}


@pytest.mark.parametrize(
    "text",
    [
        f"acme = {KEY}",
        f'acme = ["{KEY}"]',
        f'acme = "{KEY} x"',
        f'acme = "{KEY}\\r\\nX: y"',
        f'acme = "{KEY}ü"',
        'acme = ""',
        "acme = 7",
        f'acme = "{KEY * 300}"',
        f'acme.key = "{KEY}"',
    ],
)
def test_a_wrong_line_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_provider_keys(text.encode(), {"acme"})
    assert "canary" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_bytes_that_are_no_text_and_a_long_file_are_refused() -> None:
    for data in (b"\xff\xfe", b"# " + b"x" * 65_536):
        with pytest.raises(ConfigError):
            parse_provider_keys(data, {"acme"})


def test_a_descriptor_is_read_from_its_beginning_and_closed() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(f'acme = "{KEY}"'.encode())
        file.flush()
        fd = os.dup(file.fileno())
    assert read_provider_keys(fd, {"acme"})["acme"].reveal() == KEY
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_pipe_serves_as_well() -> None:
    reading, writing = os.pipe()
    os.write(writing, f'acme = "{KEY}"'.encode())
    os.close(writing)
    assert read_provider_keys(reading, {"acme"})["acme"].reveal() == KEY
