"""Authentication and authorization: static tokens and JSON web tokens, each with scopes.

    state:read:SERVICE   read its states, actors and changes         state:read:*   those of all services
    actor:send:SERVICE   tell and ask its actors                     actor:send:*
    topic:send:TOPIC     send records                                topic:send:*
    ops                  workers, metrics, checkpoints, savepoints, the OpenAPI document

Without tokens every client has every scope; the API is then bound to the loopback interface only, and rejects requests
of pages of other origins.
"""

from __future__ import annotations

import hmac
import importlib.util
import ipaddress
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tidegate.errors import SettingsError
from tidegate.settings import Settings
from tidegate_api.problems import Problem

__all__ = ("UNRESTRICTED", "Principal", "Security", "is_loopback")

_MIN_TOKEN_LENGTH: Final = 16
_KINDS: Final = ("state:read:", "actor:send:", "topic:send:")
_CACHED: Final = 1000
_LEEWAY: Final = 10
_ASYMMETRIC: Final = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"]
_SYMMETRIC: Final = ["HS256", "HS384", "HS512"]


@dataclass(frozen=True)
class Principal:
    """An authenticated caller and its scopes."""

    scopes: frozenset[str]
    everything: bool = False
    peer: bool = False
    """Another worker of the app."""

    def may(self, scope: str) -> bool:
        if self.everything or scope in self.scopes:
            return True
        kind, _, _ = scope.rpartition(":")
        return bool(kind) and f"{kind}:*" in self.scopes

    def may_any(self, kind: str) -> bool:
        """Whether the caller has any scope of this kind."""
        return self.everything or any(scope.startswith(kind) for scope in self.scopes)

    def require(self, *scopes: str) -> None:
        """Require one of these scopes."""
        if not any(map(self.may, scopes)):
            needed = " or ".join(scopes)
            raise Problem(403, "scope", f"the token lacks the scope {needed}")


UNRESTRICTED: Final = Principal(frozenset(), everything=True)


class Security:
    def __init__(self, settings: Settings) -> None:
        tokens = [*_entries(settings.api_tokens, "api_tokens"), *_file_entries(settings.api_tokens_file)]
        self._tokens = [(_digest(token), Principal(scopes)) for token, scopes in tokens]
        if settings.api_peer_token:
            _check_token(settings.api_peer_token, "api_peer_token")
            peer = Principal(frozenset(), everything=True, peer=True)
            self._tokens.append((_digest(settings.api_peer_token), peer))
        self._jwt = _Jwt.of(settings)
        self.enabled = bool(tokens or self._jwt)
        """Whether tokens are configured; without them every caller has every scope."""
        self._known: dict[bytes, tuple[float, Principal]] = {}

    def check_bind(self, host: str, *, insecure: bool) -> None:
        """Refuse to serve other machines without authentication."""
        if not (is_loopback(host) or self.enabled or insecure):
            raise SettingsError(
                f"the API would serve every client that reaches {host}, because no tokens are configured. Configure "
                f"some (TIDEGATE_API_TOKENS, --api-tokens-file, TIDEGATE_API_JWT_KEY), bind the API to 127.0.0.1, or "
                f"give --insecure if the network itself restricts access."
            )

    def principal(self, authorization: bytes | None) -> Principal:
        """The authenticated caller. Problem 401: the token is missing or unknown."""
        if not self.enabled:
            return UNRESTRICTED
        kind, _, token = (authorization or b"").partition(b" ")
        if kind.lower() != b"bearer" or not token:
            raise _unauthorized("a token is required: Authorization: Bearer TOKEN")
        token = token.strip()
        digest = sha256(token).digest()
        found: Principal | None = None
        for known, principal in self._tokens:  # all of them, so that the timing reveals nothing
            if hmac.compare_digest(known, digest):
                found = principal
        return found or self._from_jwt(token, digest)

    def _from_jwt(self, token: bytes, digest: bytes) -> Principal:
        if self._jwt is None:
            raise _unauthorized("the token is unknown")
        now = time.time()
        cached = self._known.get(digest)
        if cached is not None and cached[0] > now:
            return cached[1]
        expires, principal = self._jwt.check(token)
        if len(self._known) >= _CACHED:
            self._known.clear()
        self._known[digest] = (expires, principal)
        return principal


class _Jwt:
    def __init__(self, key: str, audience: str, issuer: str) -> None:
        self._key, self._audience, self._issuer = key, audience or None, issuer or None
        pem = "-----BEGIN" in key
        if not pem and len(key.encode()) < 32:
            raise SettingsError("api_jwt_key: a secret for JSON web tokens needs 32 bytes or more")
        if pem and "PRIVATE KEY" in key:
            raise SettingsError("api_jwt_key is a private key: give the public key, tokens are only verified here")
        if pem and importlib.util.find_spec("cryptography") is None:
            raise SettingsError("api_jwt_key is a public key, which needs the extra jwt: pip install 'tidegate[jwt]'")
        self._algorithms = _ASYMMETRIC if pem else _SYMMETRIC

    @classmethod
    def of(cls, settings: Settings) -> _Jwt | None:
        key = settings.api_jwt_key or (_read(settings.api_jwt_key_file) if settings.api_jwt_key_file else "")
        return cls(key.strip(), settings.api_jwt_audience, settings.api_jwt_issuer) if key.strip() else None

    def check(self, token: bytes) -> tuple[float, Principal]:
        import jwt

        options: Any = {"require": ["exp"], "verify_aud": self._audience is not None}
        try:
            claims = jwt.decode(
                token.decode("ascii"),
                self._key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY,
                options=options,
            )
        except (jwt.InvalidTokenError, UnicodeDecodeError) as error:
            raise _unauthorized(f"the token is not valid: {error}") from error
        return float(claims["exp"]), Principal(frozenset(_scopes_of(claims)))


def _scopes_of(claims: dict[str, Any]) -> Iterable[str]:
    for name in ("scope", "scopes", "scp"):
        found = claims.get(name)
        if isinstance(found, str):
            yield from found.split()
        elif isinstance(found, list):
            yield from (scope for scope in found if isinstance(scope, str))


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, {"www-authenticate": 'Bearer realm="tidegate"'})


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def _file_entries(path: str) -> Iterable[tuple[str, frozenset[str]]]:
    return _entries(_read(path), path) if path else ()


def _entries(text: str, where: str) -> Iterable[tuple[str, frozenset[str]]]:
    for line in text.replace(";", "\n").splitlines():
        token, *scopes = line.partition("#")[0].split()[:100] or [""]
        if not token:
            continue
        _check_token(token, where)
        for scope in scopes:
            if scope != "ops" and not scope.startswith(_KINDS):
                raise SettingsError(
                    f"{where}: {scope!r} is not a scope; scopes are state:read:SERVICE, actor:send:SERVICE, "
                    f"topic:send:TOPIC and ops"
                )
        if not scopes:
            raise SettingsError(f"{where}: a token has no scope; write TOKEN SCOPE SCOPE ...")
        yield token, frozenset(scopes)


def _check_token(token: str, where: str) -> None:
    if len(token) < _MIN_TOKEN_LENGTH or not token.isascii():
        raise SettingsError(
            f"{where}: a token needs at least {_MIN_TOKEN_LENGTH} ASCII characters; "
            f"generate one with: openssl rand -hex 24"
        )


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
