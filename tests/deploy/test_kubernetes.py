"""The manifests: what they must hold, read from the files; and built and validated where the tools are."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.metric_names import DEPLOY, ROOT, recorded

FOLDER = DEPLOY / "kubernetes"
KUBECTL = shutil.which("kubectl")
BUILT = ["base", "scan", "examples/origin-hpa", *(f"overlays/{cloud}" for cloud in ("eks", "aks", "ack"))]
KUBERNETES = "1.33"
"""Of the schemas; the least version that has everything the manifests use."""
CUSTOM = ("monitoring.coreos.com/v1", "azmonitoring.coreos.com/v1", "keda.sh/v1alpha1")
"""Groups without a schema here."""


@cache
def documents(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(FOLDER.rglob("*.yaml")):
        for one in documents(path.read_text(encoding="utf-8")):
            if "kind" in one and one["kind"] != "Kustomization":
                yield f"{path.relative_to(FOLDER)}:{one['kind']}", one


def pods() -> list[Any]:
    found = [(name, one["spec"]["template"]) for name, one in manifests() if "template" in one.get("spec", {})]
    return [pytest.param(template, id=name) for name, template in found]


def one_of(kind: str, folder: str) -> dict[str, Any]:
    [found] = [one for name, one in manifests() if one["kind"] == kind and name.startswith(folder)]
    return found


@pytest.mark.parametrize("pod", pods())
def test_every_container_is_locked(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    own = spec["securityContext"]
    assert own["runAsNonRoot"] and own["runAsUser"] and own["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        locked = container["securityContext"]
        assert locked["readOnlyRootFilesystem"] and not locked["allowPrivilegeEscalation"]
        assert locked["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]
        assert ":" in container["image"] and not container["image"].endswith(":latest")


@pytest.mark.parametrize("pod", pods())
def test_every_mount_is_a_volume(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    mounted = {
        mount["name"]
        for container in [*spec.get("initContainers", []), *spec["containers"]]
        for mount in container["volumeMounts"]
    }
    assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_what_points_at_the_pods_finds_them() -> None:
    deployment = one_of("Deployment", "base")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        one_of("Service", "base")["spec"]["selector"],
        one_of("PodDisruptionBudget", "base")["spec"]["selector"]["matchLabels"],
        one_of("NetworkPolicy", "base")["spec"]["podSelector"]["matchLabels"],
        one_of("PodMonitor", "metrics")["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)
    scalers = [one for _, one in manifests() if "scaleTargetRef" in one.get("spec", {})]
    assert {one["spec"]["scaleTargetRef"]["name"] for one in scalers} == {deployment["metadata"]["name"]}


def test_probes_ask_what_the_server_has() -> None:
    routes = (ROOT / "src" / "degarble_engine" / "server" / "app.py").read_text(encoding="utf-8")
    [serve] = one_of("Deployment", "base")["spec"]["template"]["spec"]["containers"]
    assert [port["name"] for port in serve["ports"]] == ["http"]
    for probe, path in (("startupProbe", "/ready"), ("readinessProbe", "/ready"), ("livenessProbe", "/health")):
        assert serve[probe]["httpGet"] == {"path": path, "port": "http"}
        assert f'"{path}"' in routes


def test_arguments_are_options_of_the_commands() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    pod = one_of("Deployment", "base")["spec"]["template"]["spec"]
    for container in [*pod["initContainers"], *pod["containers"]]:
        command, *words = container["args"]
        [section] = [part for part in page.split("\n## degarble ") if part.startswith(f"{command}\n")]
        assert all(f"{word} " in section for word in words if word.startswith("--")), command


def test_the_gate_reads_the_files_that_are_served() -> None:
    pod = one_of("Deployment", "base")["spec"]["template"]["spec"]
    [gate], [serve] = pod["initContainers"], pod["containers"]
    assert gate["args"][:2] == ["check", serve["args"][1]]
    assert gate["image"] == serve["image"] and gate["volumeMounts"][0] == serve["volumeMounts"][0]


def test_autoscalers_read_the_guarded_series_at_their_bounds() -> None:
    triggers = one_of("ScaledObject", "scaling/keda")["spec"]["triggers"]
    metrics = one_of("HorizontalPodAutoscaler", "scaling/hpa")["spec"]["metrics"]
    adapter = yaml.safe_load((FOLDER / "scaling" / "hpa" / "adapter-rules.yaml").read_text(encoding="utf-8"))
    rules = (DEPLOY / "prometheus" / "saturation.rules.yaml").read_text(encoding="utf-8")
    series = ["model:scaling_queue:sum", "model:scaling_kv_cache_usage:avg"]
    assert set(series) <= recorded()
    for name, trigger, rule, metric in zip(series, triggers, adapter["externalRules"], metrics, strict=True):
        assert name in trigger["metadata"]["query"] and rule["seriesQuery"] == name
        assert rule["name"]["as"] == metric["external"]["metric"]["name"]
    assert [trigger["metadata"]["threshold"] for trigger in triggers] == ["8", "0.8"]
    assert metrics[0]["external"]["target"]["averageValue"] == "8"
    assert metrics[1]["external"]["target"]["value"] == "800m"
    assert "8 * model:replicas:count" in rules and "clamp_max(model:kv_cache_usage:avg, 0.8)" in rules


def test_a_scan_has_an_index_for_every_line() -> None:
    job = one_of("Job", "scan")["spec"]
    lines = (FOLDER / "scan" / "checkpoints.txt").read_text(encoding="utf-8").split()
    assert job["completions"] == job["maxFailedIndexes"] == len(lines)


@pytest.mark.parametrize("cloud", ["eks", "aks", "ack"])
def test_collectors_sample_before_they_send(cloud: str) -> None:
    held = yaml.safe_load((FOLDER / "overlays" / cloud / "collector.yaml").read_text(encoding="utf-8"))
    traces = held["service"]["pipelines"]["traces"]
    assert 0 < held["processors"]["probabilistic_sampler"]["sampling_percentage"] <= 100
    assert "probabilistic_sampler" in traces["processors"]
    assert set(traces["processors"]) == set(held["processors"]) and set(traces["exporters"]) == set(held["exporters"])
    assert set(held["service"]["extensions"]) == set(held["extensions"])


def test_the_image_is_not_root_and_is_pinned() -> None:
    lines = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases and all(base.rpartition(":")[2][0].isdigit() for base in bases)
    user = one_of("Deployment", "base")["spec"]["template"]["spec"]["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in lines
    assert any(line.startswith("HEALTHCHECK ") for line in lines)


@pytest.fixture(scope="module")
def built() -> dict[str, list[dict[str, Any]]]:
    if KUBECTL is None:
        pytest.skip("kubectl is not installed")
    return {name: documents(kustomize(FOLDER / name)) for name in BUILT}


def kustomize(folder: Path) -> str:
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_overlays_change_what_they_say(built: dict[str, list[dict[str, Any]]]) -> None:
    for cloud, group in (("eks", CUSTOM[0]), ("aks", CUSTOM[1]), ("ack", CUSTOM[0])):
        of = {(one["kind"], one["metadata"]["name"]): one for one in built[f"overlays/{cloud}"]}
        assert of["PodMonitor", "llm"]["apiVersion"] == group
        assert of["ServiceAccount", "llm"]["metadata"]["annotations"]
        pod = of["Deployment", "llm"]["spec"]["template"]["spec"]
        assert pod["nodeSelector"] and pod["tolerations"]
        claim = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert of["PersistentVolumeClaim", claim]["spec"]["storageClassName"]
        images = {container["image"] for container in [*pod["initContainers"], *pod["containers"]]}
        assert len(images) == 1 and "degarble:local" not in images
        assert "--otlp-endpoint=http://otel-collector:4318" in pod["containers"][0]["args"]
        assert of["Service", "otel-collector"]["spec"]["ports"][1]["port"] == 4318
        assert sum(kind in ("HorizontalPodAutoscaler", "ScaledObject") for kind, _ in of) == 1


@pytest.mark.slow
def test_built_manifests_fit_the_schemas(built: dict[str, list[dict[str, Any]]]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for held in built.values():
        for one in held:
            if one["apiVersion"] not in CUSTOM:
                kubernetes_validate.validate(one, KUBERNETES, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**built["base"][0], "sepc": {}}, KUBERNETES, strict=True)
