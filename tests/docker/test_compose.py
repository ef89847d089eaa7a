"""compose.yaml is what the Compose Specification allows, and says what the code understands."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.docker.files import DOCKER, ROOT, compose, known_variable

SCHEMA = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
"""The schema of compose-spec.io, as the package check-jsonschema brings it."""
WORKERS = ("worker-1", "worker-2")


def validate(document: Any) -> None:
    schema = json.loads(Path(str(distribution("check-jsonschema").locate_file(SCHEMA))).read_text())
    jsonschema.Draft7Validator(schema).validate(document)


def test_it_is_a_compose_file() -> None:
    validate(compose())


@pytest.mark.parametrize(
    ("path", "wrong"),
    [(("services", "kafka", "image"), 5), (("services", "worker-1", "portz"), []), (("volums",), {})],
)
def test_the_schema_finds_mistakes(path: tuple[str, ...], wrong: object) -> None:
    broken = target = compose()
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        validate(broken)


def test_there_are_a_broker_two_workers_and_spark() -> None:
    services = compose()["services"]
    assert {"kafka", *WORKERS, "spark"} <= services.keys()
    assert services["kafka"]["environment"]["KAFKA_PROCESS_ROLES"] == "broker,controller", "KRaft: no ZooKeeper"
    for name in (*WORKERS, "likes", "spark"):
        assert services[name]["depends_on"]["kafka"]["condition"] == "service_healthy"


def test_every_setting_is_one() -> None:
    for name, service in compose()["services"].items():
        ours = [variable for variable in service.get("environment", {}) if variable.startswith("TIDEGATE_")]
        assert [variable for variable in ours if not known_variable(variable)] == [], name
        assert ours or name == "kafka"


def test_files_named_in_the_compose_file_exist() -> None:
    loaded = compose()
    for service in loaded["services"].values():
        if "build" in service:
            assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert f" AS {service['build']['target']}\n" in (DOCKER / "Dockerfile").read_text()
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in loaded["volumes"] or (DOCKER / source).exists()
        assert set(service.get("secrets", ())) <= loaded["secrets"].keys()
    assert (DOCKER / "secrets" / "api-tokens.example").is_file()
    assert "/docker/secrets/api-tokens" in (ROOT / ".gitignore").read_text().splitlines()


def test_workers_have_names_data_and_ports_of_their_own() -> None:
    workers = [compose()["services"][name] for name in WORKERS]
    for setting in ("TIDEGATE_KAFKA_INSTANCE", "TIDEGATE_ADVERTISE"):
        assert len({worker["environment"][setting] for worker in workers}) == len(workers)
    assert len({worker["volumes"][0] for worker in workers}) == len(workers)
    assert len({worker["ports"][0] for worker in workers}) == len(workers)
    for name, worker in zip(WORKERS, workers, strict=True):
        assert worker["environment"]["TIDEGATE_ADVERTISE"] == f"{name}:8000"
        assert worker["ports"][0].startswith("127.0.0.1:"), "nothing is opened to other machines"


def test_our_containers_have_no_rights_that_they_do_not_need() -> None:
    for name, service in compose()["services"].items():
        if "build" in service:
            assert service["read_only"], name
            assert service["cap_drop"] == ["ALL"], name
            assert "privileged" not in service, name
            assert "user" not in service, f"{name}: the image's own is not root"
