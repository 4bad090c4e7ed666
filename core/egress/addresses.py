"""Which addresses may be connected to: public ones, and what the operator opened by name.

By ipaddress's own tables and, since those differ between versions, by explicit ones as well (IANA's
special-purpose registries). An IPv6 address that stands for an IPv4 one is judged by that one.
"""

import ipaddress
from collections.abc import Iterable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32", "224.0.0.0/4", "240.0.0.0/4",
        "::/128", "fe80::/10", "fec0::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::254/128",
    )
)  # fmt: skip
"""No rule opens these: link-local, where machines' metadata is, metadata elsewhere, multicast, nowhere."""
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
        "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "::1/128", "100::/64", "2001::/23",
        "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7", "64:ff9b:1::/48",
    )
)  # fmt: skip
# prefix, and how far to the right the IPv4 address ends (in bits)
_EMBEDDED = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # mapped (RFC 4291, 2.5.5.2)
    (ipaddress.IPv6Network("::/96"), 0),  # compatible (RFC 4291, 2.5.5.1)
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # translated (RFC 2765)
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64 (RFC 6052)
    (ipaddress.IPv6Network("64:ff9b:1::/48"), 0),  # NAT64 of the network's own (RFC 8215)
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4 (RFC 3056)
)
_TEREDO = ipaddress.IPv6Network("2001::/32")
_ISATAP = (0x5EFE, 0x0200_5EFE)  # RFC 5214: the third quarter of the address


def why_not(address: Address, opened: Iterable[Network]) -> str:
    """Why an address may not be connected to; empty where it may.

    Args:
        opened: what the operator opened beyond public addresses.
    """
    forms = _forms(address)
    if any(form in network for form in forms for network in _NEVER):
        return "it is link-local, metadata, multicast or no address of a machine"
    networks = tuple(opened)
    if any(address in network for network in networks):
        return ""
    if any(not _public(form) for form in forms):
        return "it is in a private or special network"
    return ""


def parse_addresses(texts: Sequence[str]) -> list[Address]:
    """Addresses as a resolver gives them. ValueError for one that is none or names an interface."""
    found: list[Address] = []
    for text in texts:
        address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
            raise ValueError("it names an interface of the server")
        found.append(address)
    return found


def _forms(address: Address) -> list[Address]:
    """The address, and the IPv4 ones that it stands for."""
    forms: list[Address] = [address]
    if isinstance(address, ipaddress.IPv4Address):
        return forms
    number = int(address)
    for prefix, shift in _EMBEDDED:
        if address in prefix and number > 1:
            forms.append(ipaddress.IPv4Address((number >> shift) & 0xFFFF_FFFF))
    if address in _TEREDO:
        forms += [
            ipaddress.IPv4Address((number >> 64) & 0xFFFF_FFFF),
            ipaddress.IPv4Address(~number & 0xFFFF_FFFF),
        ]
    if (number >> 32) & 0xFFFF_FFFF in _ISATAP:
        forms.append(ipaddress.IPv4Address(number & 0xFFFF_FFFF))
    return forms


def _public(address: Address) -> bool:
    if any(address in network for network in _SPECIAL):
        return False
    if isinstance(address, ipaddress.IPv6Address) and len(_forms(address)) > 1:
        return True  # judged by what it stands for
    return address.is_global and not address.is_multicast and not address.is_reserved
