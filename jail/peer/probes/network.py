"""The host's listeners, and anything beyond the jail."""

import os
import socket
import time

from jail.peer.probes.finding import Findings

_CONNECT_S = 10.0
_DNS_S = 5.0


def probe(findings: Findings, host: str, port: int, abstract: str) -> None:
    """Try to reach the doctor's own listeners and the world."""
    findings.works("own loopback listener reached", _own_loopback)
    findings.works("own abstract socket reached", _own_abstract)
    for target in dict.fromkeys((host, "127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0")):  # noqa: S104
        findings.refused(f"connect to {target} port {port}", _connect, target, port)
    for target in ("169.254.169.254", "10.0.0.1", "192.168.0.1", "fd00:ec2::254", "2001:db8::1"):
        findings.refused(f"connect to {target}", _connect, target, 80)
    findings.refused("connect to an abstract socket of the host", _abstract, abstract)
    began = time.monotonic()
    findings.refused("resolve a name", socket.getaddrinfo, "example.com", 80)
    took_s = time.monotonic() - began
    findings.add("resolving fails fast", f"< {_DNS_S} s", f"{took_s:.2f} s", took_s < _DNS_S)
    names = [name for _, name in socket.if_nameindex()]
    findings.equal("interfaces", ["lo"], [name for name in names if not name.startswith("sit")])


def _connect(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(_CONNECT_S)
        sock.connect((host, port))


def _abstract(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_CONNECT_S)
        sock.connect(f"\0{name}")


def _own_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _connect("127.0.0.1", server.getsockname()[1])


def _own_abstract() -> None:
    name = f"certosa-probe-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen(1)
        _abstract(name)
