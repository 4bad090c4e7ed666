"""Network: a jail has a loopback of its own and nothing else."""

import os
import socket
import time

import pytest

from tests.fakes.jails import ShellJail

CONNECT = """
import socket
s = socket.socket(socket.AF_INET6 if ':' in {host!r} else socket.AF_INET)
s.settimeout(20)
s.connect(({host!r}, {port}))
print('connected')
"""


@pytest.mark.wall("loopback")
def test_its_own_loopback_works(alice: ShellJail) -> None:
    code = """
import socket
server = socket.create_server(('127.0.0.1', 0))
socket.create_connection(server.getsockname()).sendall(b'hello')
print(server.accept()[0].recv(5).decode())
"""
    assert alice.python(code) == (0, "hello\n")


@pytest.mark.wall("loopback")
@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0"])
def test_a_listener_of_the_hosts_is_out_of_reach(alice: ShellJail, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()

        status, text = alice.python(CONNECT.format(host=host, port=port))

    assert status != 0
    assert "connected" not in text
    assert "timed out" not in text


@pytest.mark.wall("outside")
@pytest.mark.parametrize(
    "host", ["169.254.169.254", "10.0.0.1", "192.168.1.1", "1.1.1.1", "fd00:ec2::254", "2001:db8::1"]
)
def test_nothing_beyond_is_reachable_and_that_is_said_at_once(alice: ShellJail, host: str) -> None:
    status, text = alice.python(CONNECT.format(host=host, port=80))

    assert status != 0
    assert "unreachable" in text


@pytest.mark.wall("abstract")
def test_an_abstract_socket_of_the_hosts_is_not_there(alice: ShellJail) -> None:
    name = f"certosa-test-{os.getpid()}"
    connect = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}')"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(f"\0{name}")
        server.listen(1)
        client.connect(f"\0{name}")

        status, text = alice.python(connect)

    assert status != 0
    assert "ConnectionRefusedError" in text


@pytest.mark.wall("abstract")
def test_its_own_abstract_socket_works(alice: ShellJail) -> None:
    code = """
import socket
server = socket.socket(socket.AF_UNIX); server.bind('\\0own'); server.listen(1)
client = socket.socket(socket.AF_UNIX); client.connect('\\0own'); print('connected')
"""
    assert alice.python(code) == (0, "connected\n")


@pytest.mark.wall("names")
def test_names_fail_to_resolve_and_fast(alice: ShellJail) -> None:
    began = time.monotonic()
    status, text = alice.python("import socket; socket.getaddrinfo('example.com', 80)")

    assert status != 0
    assert "gaierror" in text
    assert time.monotonic() - began < 5
    assert alice.python("import socket; socket.getaddrinfo('localhost', 80)")[0] == 0


@pytest.mark.wall("second-peer")
def test_no_second_peer_finds_the_listener(alice: ShellJail) -> None:
    status, text = alice.sh("cat /proc/net/unix | wc -l; ls /tmp /home/user | grep -c edge")

    assert text.split()[1] == "0"
    assert status != 0
