"""The keys a pump goes by, and whom it asks what they permit. Shapes only."""

from typing import Protocol

import msgspec


class Permissions(Protocol):
    """Who may do what, by public key; may change while we run."""

    def may(self, public_key: str, permission: str) -> bool: ...


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of this process, in z85 text. `server_secret` is empty where nothing is bound."""

    server_public: str
    server_secret: str
    public: str
    secret: str
    allowed: Permissions

    def __repr__(self) -> str:
        return f"Security(public={self.public!r})"  # Secrets stay out of logs and tracebacks.
