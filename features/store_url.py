"""The URL of an external store: `redis://`, `rediss://` or `unix://`; its text form never shows a password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from features.errors import StoreUnavailable

SCHEMES = ("redis", "rediss", "unix")
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_DEFAULT_PORT = 6379


@dataclass(frozen=True)
class StoreUrl:
    """Where a store is and who we are there.

    Args:
        tls: `ssl_…` options by name, for `rediss` only.
    """

    scheme: str
    host: str = ""
    port: int = _DEFAULT_PORT
    path: str = ""
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}" + (f"?db={self.db}" if self.db else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.db}"

    def hide(self, text: str) -> str:
        """`text` without the password, should a foreign message hold it."""
        return text.replace(self.password, "***") if self.password else text


def parse_store_url(url: str) -> StoreUrl:
    """Reads `redis[s]://[user[:password]@]host[:port][/db][?…]` or `unix://[user[:password]@]/path[?db=…]`.

    Raises:
        StoreUnavailable: names what is wrong, and nothing of the URL that may be secret.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text may hold a piece of the password
        raise StoreUnavailable("store URL: what follows the host is not a port, or the host is not one") from None
    if parts.scheme not in SCHEMES:
        raise StoreUnavailable(f"store URL: scheme {parts.scheme!r} is not one of {', '.join(SCHEMES)}")
    options = _options(parts)
    username = options.pop("username", None) or (unquote(parts.username) if parts.username else None)
    password = options.pop("password", None) or (unquote(parts.password) if parts.password else None)
    if parts.scheme == "unix":
        return _unix(parts, options, username, password)
    db = _number(options.pop("db", parts.path.strip("/") or "0"))
    host = unquote(parts.hostname or "localhost")
    tls = tuple(options.items())
    return StoreUrl(parts.scheme, host, port or _DEFAULT_PORT, "", db, username, password, tls)


def _unix(parts: SplitResult, options: dict[str, str], username: str | None, password: str | None) -> StoreUrl:
    path = unquote(parts.path)
    if not path:
        raise StoreUnavailable("store URL: unix:// needs the socket's absolute path, as in unix:///run/store.sock")
    return StoreUrl("unix", path=path, db=_number(options.get("db", "0")), username=username, password=password)


def _options(parts: SplitResult) -> dict[str, str]:
    known = {"db", "username", "password", *(TLS_OPTIONS if parts.scheme == "rediss" else ())}
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    for name in options:
        if name not in known:
            raise StoreUnavailable(f"store URL: option {name!r} is not one of {', '.join(sorted(known))}")
    return options


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise StoreUnavailable(f"store URL: db {text!r} is not a number")
    return int(text)
