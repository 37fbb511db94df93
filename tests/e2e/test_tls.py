"""kube-scheduler and the extender with the certificates of docs/on-a-cluster.md: made by its commands, used as the commented lines of the manifests say."""

import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.builders import pod
from tests.e2e.calls import answers_ok
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import MANIFESTS
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import free_port

GUIDE = MANIFESTS.parent / "docs" / "on-a-cluster.md"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the guide's openssl commands and return the folder of what they make."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, whose commands the guide gives, is not on the PATH")
    folder = tmp_path_factory.mktemp("certificates")
    (commands,) = (block for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL) if "openssl" in block)
    subprocess.run(["sh", "-e", "-c", commands], cwd=folder, check=True, capture_output=True)
    return folder


def uncommented(name: str, first: str) -> list[str]:
    """Return the lines of a comment of a manifest from the one that begins with ``first`` on, as one would uncomment them."""
    lines = iter((MANIFESTS / name).read_text(encoding="utf-8").splitlines())
    found = next(line for line in lines if line.strip().startswith(f"# {first}"))
    block = [found]
    for line in lines:
        if not line.strip().startswith("#"):
            break
        block.append(line)
    return [re.sub(r"^( *)# ", r"\1", line) for line in block]


def tls_configuration(url: str, certificates: Path) -> dict[str, Any]:
    """Return the shipped configuration with its commented lines in place of the urlPrefix, for an extender and files that are elsewhere."""
    configuration: dict[str, Any] = yaml.safe_load((MANIFESTS / "scheduler-config.yaml").read_text(encoding="utf-8"))
    (entry,) = configuration["extenders"]
    shown = yaml.safe_load("\n".join(uncommented("scheduler-config.yaml", "urlPrefix: https")))
    files = {key: str(certificates / Path(value).name) if key.endswith("File") else value for key, value in shown["tlsConfig"].items()}
    return {**configuration, "extenders": [{**entry, **shown, "urlPrefix": url, "tlsConfig": files}]}


@pytest.mark.usefixtures("accounts")
def test_a_pod_is_bound_over_tls_and_nobody_without_a_certificate_is_answered(
    control_plane: ControlPlane, live: LiveCluster, certificates: Path
) -> None:
    port, probe_port = free_port(), free_port()
    options = [option.strip().removeprefix("- ") for option in uncommented("deployment.yaml", "- --tls-cert")]
    files = [re.sub(r"=/.*/", f"={certificates}/", option) for option in options]
    kubeconfig = control_plane.kubeconfig("linkwise-extender")
    command = (sys.executable, "-m", "extender", "serve", "--kubeconfig", kubeconfig, f"--port={port}", f"--probe-port={probe_port}", *files)
    control_plane.run("extender-tls", command).wait_ready(lambda: answers_ok(f"http://127.0.0.1:{probe_port}/readyz"))
    control_plane.start_scheduler(tls_configuration(f"https://127.0.0.1:{port}", certificates))

    live.make_machine("dgx1v", "node-a")
    live.make_pod(pod("train").gpus(2))
    assert "linkwise.dev/allocation" in live.wait_bound("train", timeout=20)["metadata"]["annotations"]

    certified = trusting(certificates)
    certified.load_cert_chain(certificates / "scheduler.crt", certificates / "scheduler.key")
    assert version(port, certified).status_code == 200
    with pytest.raises(httpx.TransportError):
        version(port, trusting(certificates))


def trusting(certificates: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates / "ca.crt"))


def version(port: int, context: ssl.SSLContext) -> httpx.Response:
    with httpx.Client(verify=context) as client:
        return client.get(f"https://127.0.0.1:{port}/version", extensions={"sni_hostname": "linkwise-extender.linkwise-system.svc"})
