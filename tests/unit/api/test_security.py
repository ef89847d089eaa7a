"""Reads and writes require the right token, and requests of other origins are not served by accident."""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from tests.unit.api.support import Served, make_app, served
from tidegate.errors import SettingsError
from tidegate.settings_resolution import resolve
from tidegate_api.security import Principal, Security, is_loopback
from tidegate_api.server import listen

OPS, READER, SENDER, NOBODY = ("t" * 16 + name for name in ("ops", "reader", "sender", "nobody"))
TOKENS = f"{OPS} ops; {READER} state:read:greeter\n{SENDER} topic:send:visits actor:send:* # a remark\n{NOBODY} ops;"
SECRET = "s" * 40


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, item in document["paths"].items():
        for method in item:
            yield method.upper(), path.replace("{key}", "ann")


async def ask(town: Served, method: str, path: str, token: str | None) -> int:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    json: Any = {"records": [{"value": {"name": "ann"}}]}
    if path.endswith("/batch"):
        json = {"keys": ["ann"]}
    elif path.endswith(("/tell", "/ask")):
        json = {"key": "ann", "message": {}, "type": "HowOften"}
    elif path == "/v1/savepoints":
        json = {"name": f"s{time.time_ns()}"}
    async with town.client.stream(method, path, headers=headers, json=json if method == "POST" else None) as answer:
        return answer.status_code


async def test_every_documented_route_requires_the_right_token(tmp_path: Path) -> None:
    async with served(tmp_path, make_app(api_tokens=TOKENS)) as town:
        document = (await town.get("/openapi.json", headers={"authorization": f"Bearer {OPS}"})).json()
        routes = list(operations(document))
        assert len(routes) > 40
        for method, path in [*routes, ("GET", "/openapi.json"), ("GET", "/docs")]:
            assert await ask(town, method, path, None) == 401, (method, path)
            assert await ask(town, method, path, "x" * 20) == 401, (method, path)
            needed = _token_for(path)
            for token in {OPS, READER, SENDER} - needed:
                assert await ask(town, method, path, token) == 403, (method, path, token)
            for token in needed:
                assert await ask(town, method, path, token) not in (401, 403), (method, path, token)
        for path in ("/livez", "/readyz", "/"):
            assert await ask(town, "GET", path, None) == 200


def _token_for(path: str) -> set[str]:
    if path in ("/v1/services", "/v1/services/greeter"):
        return {OPS, READER}
    if path == "/v1/topics":
        return {OPS, SENDER}
    if path.startswith("/v1/services/greeter/"):
        return {SENDER} if path.endswith(("/tell", "/ask")) else {READER}
    if path.endswith(("/tell", "/ask")):
        return {SENDER}
    if path.startswith("/v1/services/"):
        return set() if path.count("/") > 3 else {OPS}
    if path.endswith("/records"):
        return {SENDER} if "visits" in path else set()
    return {OPS}


async def test_web_tokens_are_checked_with_their_time_audience_and_scopes(tmp_path: Path) -> None:
    def token(**claims: Any) -> str:
        known = {"exp": time.time() + 60, "aud": "town", "scope": "ops state:read:greeter", **claims}
        return jwt.encode({name: it for name, it in known.items() if it is not None}, SECRET, "HS256")

    app = make_app(api_jwt_key=SECRET, api_jwt_audience="town")
    async with served(tmp_path, app) as town:
        for _ in range(2):  # the second time it is known
            assert await ask(town, "GET", "/v1/workers", token()) == 200
        assert await ask(town, "GET", "/v1/workers", token(scope=None, scopes=["ops"])) == 200
        assert await ask(town, "GET", "/v1/workers", token(scope="state:read:*")) == 403
        for bad in (
            token(exp=time.time() - 60),
            token(exp=None),
            token(aud="village"),
            token() + "x",
            jwt.encode({"exp": time.time() + 60, "aud": "town", "scope": "ops"}, "z" * 40, "HS256"),
            jwt.encode({"exp": time.time() + 60, "aud": "town", "scope": "ops"}, "", "none"),
        ):
            assert await ask(town, "GET", "/v1/workers", bad) == 401


def test_a_public_key_takes_no_token_that_was_signed_with_it_as_a_secret() -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    security = Security(resolve({"api_jwt_key": pem}, {}, {}).settings)
    claims = {"exp": time.time() + 60, "scope": "ops"}
    good = jwt.encode(claims, private, "ES256")
    assert security.principal(b"Bearer " + good.encode()).may("ops")
    import base64
    import hashlib
    import hmac
    import json

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    unsigned = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()) + "." + part(json.dumps(claims).encode())
    forged = unsigned + "." + part(hmac.new(pem.encode(), unsigned.encode(), hashlib.sha256).digest())
    with pytest.raises(Exception, match="not valid"):
        security.principal(b"Bearer " + forged.encode())


async def test_without_tokens_only_local_same_origin_requests_are_served(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        path = "/v1/services"
        assert (await town.get(path, headers={"host": "localhost:8000"})).status_code == 200
        assert (await town.get(path, headers={"host": "evil.example"})).status_code == 421
        assert (await town.get(path, headers={"origin": "https://evil.example"})).status_code == 403
        answer = await town.get(path, headers={"origin": town.server.url})
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_configured_origins_may_use_the_api_from_browsers(tmp_path: Path) -> None:
    app = make_app(api_tokens=TOKENS, api_cors="https://shop.example")
    async with served(tmp_path, app, token=OPS) as town:
        good = await town.get("/v1/services", headers={"origin": "https://shop.example"})
        assert good.headers["access-control-allow-origin"] == "https://shop.example"
        other = await town.get("/v1/services", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


async def test_the_api_serves_https_with_a_certificate(tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path)
    context = ssl.create_default_context(cafile=certificate)
    async with served(tmp_path / "data", api_tls_cert=certificate, api_tls_key=key) as town:
        assert town.server.url.startswith("https://")
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=60) as client:
            assert (await client.get(f"{town.server.url}/readyz")).status_code == 200
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            with pytest.raises(httpx.HTTPError):
                await client.get(town.server.url.replace("https", "http") + "/readyz")


def _certificate(directory: Path) -> tuple[str, str]:
    """For 127.0.0.1, signed by itself."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tidegate")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(private, SHA256())
    )
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(certificate), str(key)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "[::]"])
def test_other_machines_are_not_served_without_tokens(host: str) -> None:
    settings = resolve({}, {"api": f"{host}:0"}, {}).settings
    with pytest.raises(SettingsError, match="no tokens are configured"):
        listen(settings, explicit=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"api_tokens": "short ops"}, "16 ASCII characters"),
        ({"api_tokens": f"{OPS} everything"}, "is not a scope"),
        ({"api_tokens": OPS}, "has no scope"),
        ({"api_tokens_file": "/nowhere"}, "cannot be read"),
        ({"api_jwt_key": "short"}, "32 bytes"),
        ({"api_tls_cert": "/x"}, "needs both"),
    ],
)
def test_settings_that_would_not_protect_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Security(resolve({}, options, {}).settings)


def test_a_public_key_without_its_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SettingsError, match=r"pip install 'tidegate\[jwt\]'"):
        Security(resolve({}, {"api_jwt_key": pem}, {}).settings)


def test_scopes() -> None:
    some = Principal(frozenset({"state:read:*", "actor:send:greeter"}))
    assert some.may("state:read:greeter")
    assert some.may("actor:send:greeter")
    assert not some.may("actor:send:sums")
    assert not some.may("ops")
    assert is_loopback("127.8.8.8")
    assert is_loopback("::1")
    assert not is_loopback("localhost.evil.example")
