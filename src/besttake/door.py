"""Who may come in: connections are counted, tokens compared, and loopback is told from other hosts.

`besttake serve` and the live page (`besttake.live`) have this in common.
"""

from __future__ import annotations

import hmac
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs


class Doorkeeper(socket.socket):
    """A listening socket that hangs up at once on what comes while ``most`` connections are open.

    The server has a thread for each connection, from before anyone is known to be a client.
    """

    most = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; it is closed for both sides where there are too many."""
        there, address = super().accept()
        self._there = [one for one in getattr(self, "_there", []) if one.fileno() >= 0]
        if len(self._there) >= self.most:
            with suppress(OSError):
                there.shutdown(socket.SHUT_RDWR)
        self._there.append(there)
        return there, address


def listening(host: str, port: int, most: int) -> socket.socket:
    """A socket that listens on ``host``, as `socket.create_server` makes it."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    door = Doorkeeper(family, kind, protocol)
    door.most = most
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen(most)
    except OSError:
        door.close()
        raise
    return door


def shows_token(token: str, authorization: str, query: str = "") -> bool:
    """Whether a client shows ``token``, as a header or in the address; comparing takes as long for any other."""
    offered = _offered_tokens(authorization, query)
    return any(hmac.compare_digest(one.encode(errors="replace"), token.encode()) for one in offered)


def _offered_tokens(authorization: str, query: str) -> list[str]:
    scheme, _, value = authorization.partition(" ")
    headers = [value.strip()] if scheme.lower() in ("bearer", "api-key") else []
    return [*headers, *parse_qs(query).get("token", [])]


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
