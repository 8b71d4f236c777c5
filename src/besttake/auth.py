"""Access to servers: comparing tokens, and recognising loopback addresses."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import parse_qs


def shows_token(token: str, authorizations: Sequence[str], query: str = "") -> bool:
    """Whether a client shows ``token``, in its only ``Authorization`` header or in the address.

    The comparison takes the same time for any token.
    """
    if len(authorizations) > 1:
        return False
    scheme, _, value = "".join(authorizations).partition(" ")
    headers = [value.strip()] if scheme.lower() in ("bearer", "api-key") else []
    offered = [*headers, *parse_qs(query).get("token", [])]
    return any(hmac.compare_digest(each.encode(errors="replace"), token.encode()) for each in offered)


def is_loopback(host: str) -> bool:
    """Whether ``host`` can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
