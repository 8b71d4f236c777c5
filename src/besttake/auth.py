"""Who may connect: tokens are compared, and loopback is told from other hosts."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import parse_qs


def shows_token(token: str, authorizations: Sequence[str], query: str = "") -> bool:
    """Whether a client shows ``token``, in its one ``Authorization`` header or in the address.

    Comparing takes as long for any other.
    """
    if len(authorizations) > 1:
        return False
    scheme, _, value = "".join(authorizations).partition(" ")
    headers = [value.strip()] if scheme.lower() in ("bearer", "api-key") else []
    offered = [*headers, *parse_qs(query).get("token", [])]
    return any(hmac.compare_digest(one.encode(errors="replace"), token.encode()) for one in offered)


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
