"""The manifests are what Kubernetes takes, fit together, and say what the code understands."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from tests.docker.files import KUBERNETES, known_variable, manifests, of_kind
from tidegate.settings import Settings

VERSION = "1.33"
OBJECTS = [(file, document) for file, document in manifests() if document["kind"] != "Kustomization"]


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = of_kind("StatefulSet")[0]["spec"]["template"]["spec"]
    return spec


def worker() -> dict[str, Any]:
    container: dict[str, Any] = pod()["containers"][0]
    return container


@pytest.mark.parametrize(("file", "document"), OBJECTS, ids=[f"{f}-{d['kind']}" for f, d in OBJECTS])
def test_every_manifest_is_valid(file: str, document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_validation_finds_mistakes() -> None:
    broken = of_kind("StatefulSet")[0]
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSION, strict=True)


def test_all_promised_resources_exist_and_are_applied() -> None:
    kinds = [document["kind"] for _, document in OBJECTS]
    assert sorted(kinds) == ["ConfigMap", "PodDisruptionBudget", "Secret", "Service", "Service", "StatefulSet"]
    (kustomization,) = of_kind("Kustomization")
    others = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == others
    assert [image["name"] for image in kustomization["images"]] == [worker()["image"]]


def test_every_setting_is_one() -> None:
    (settings,), (secret,) = of_kind("ConfigMap"), of_kind("Secret")
    names = [*settings["data"], *secret["stringData"], *(variable["name"] for variable in worker()["env"])]
    unknown = [name for name in names if name.startswith("TIDEGATE_") and not known_variable(name)]
    assert unknown == []


def test_selectors_and_names_meet() -> None:
    (stateful,) = of_kind("StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert stateful["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for document in (*of_kind("Service"), *of_kind("PodDisruptionBudget")):
        selector = document["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= labels.items()
    headless = next(service for service in of_kind("Service") if service["spec"].get("clusterIP") == "None")
    assert headless["metadata"]["name"] == stateful["spec"]["serviceName"]
    (secret,) = of_kind("Secret")
    for volume in pod()["volumes"]:
        for item in volume.get("secret", {}).get("items", ()):
            assert item["key"] in secret["stringData"]
    mounted = {mount["name"] for mount in worker()["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    assert mounted == claims | {volume["name"] for volume in pod()["volumes"]}


def test_probes_and_ports_are_those_of_the_api() -> None:
    (port,) = worker()["ports"]
    (settings,) = of_kind("ConfigMap")
    assert settings["data"]["TIDEGATE_API"] == f"0.0.0.0:{port['containerPort']}"
    probes = {name: worker()[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probe["path"] for probe in probes.values()] == ["/livez", "/livez", "/readyz"]
    advertise = next(variable["value"] for variable in worker()["env"] if variable["name"] == "TIDEGATE_ADVERTISE")
    assert advertise == f"$(POD_NAME).tidegate-workers:{port['containerPort']}"


def test_the_grace_period_allows_a_graceful_shutdown() -> None:
    (settings,) = of_kind("ConfigMap")
    drain = float(settings["data"]["TIDEGATE_DRAIN_SECONDS"])
    assert pod()["terminationGracePeriodSeconds"] >= drain + Settings.kafka_request_timeout


def test_pods_have_no_rights_that_they_do_not_need() -> None:
    assert pod()["securityContext"]["runAsNonRoot"]
    assert pod()["securityContext"]["runAsUser"] == pod()["securityContext"]["fsGroup"] == 10001
    assert not pod()["automountServiceAccountToken"]
    assert worker()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_no_secret_is_in_the_settings() -> None:
    (settings,) = of_kind("ConfigMap")
    assert [name for name in settings["data"] if name.endswith(("_PASSWORD", "_TOKEN", "_TOKENS", "_KEY"))] == []
