"""A real Kubernetes control plane on 127.0.0.1: etcd and kube-apiserver, and on demand kube-scheduler, kube-controller-manager and KWOK.

One instance is one cluster with its own ports, keys and folder, made by the fixture `control_plane` (one a test run) or by a test that needs its own.
It knows users and kubeconfigs; objects are the business of `api_server` and `live_cluster`. There is no kubelet: nodes are objects that a test makes
ready, and nothing runs unless KWOK plays it.

Flags follow what kubeadm sets where that matters to an extender (Node and RBAC authorization, real ServiceAccount tokens, the default admission
plugins); the rest keeps start-up short. What is started on demand is ended by `stop_extras`.
"""

import base64
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.e2e.api_server import ApiServer
from tests.e2e.calls import answers_ok
from tests.e2e.program import Program, StartError, free_port, wait_until

JsonObject = dict[str, Any]

NAMESPACE = "linkwise-system"
NODE_NAME = "real-node"  # of the one that `tests.e2e.node` starts
STAGES = Path(__file__).parent / "kwok-stages.yaml"

# SEQUENCE {INTEGER 1, OCTET STRING of 32 bytes, [0] {OID prime256v1}}: RFC 5915 without the optional public key, which Go computes.
# So a signing key needs neither openssl nor a package.
_P256_HEAD = bytes.fromhex("30310201010420")
_P256_TAIL = bytes.fromhex("a00a06082a8648ce3d030107")


@dataclass(frozen=True, slots=True)
class User:
    """Who a token stands for."""

    name: str
    groups: tuple[str, ...] = ()


def _service_account(name: str) -> User:
    return User(f"system:serviceaccount:{NAMESPACE}:{name}", ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"))


# By the short names that tests use. The two service accounts can do what RBAC grants them, from the moment that it does.
USERS = {
    "admin": User("admin", ("system:masters",)),
    "linkwise-extender": _service_account("linkwise-extender"),
    "linkwise-agent": _service_account("linkwise-agent"),
    "kube-scheduler": User("system:kube-scheduler"),
    "kubelet": User(f"system:node:{NODE_NAME}", ("system:nodes",)),
    "alice": User("alice"),
}


class ControlPlane:
    """One cluster; ``programs`` as `tests.e2e.build.programs` returns them, ``directory`` is empty and its own."""

    def __init__(self, programs: Mapping[str, Path], directory: Path) -> None:
        self.programs = programs
        self.directory = directory
        self.etcd: Program
        self.kube_apiserver: Program
        self.url = ""
        self._tokens = {name: secrets.token_hex(16) for name in USERS}
        self._clients: dict[str, ApiServer] = {}
        self._extras: list[Program] = []

    # Starting and stopping

    def start(self) -> "ControlPlane":
        """Start etcd and kube-apiserver and wait until they serve; raises StartError with the end of the log."""
        for attempt in range(3):
            try:
                self._start()
            except StartError as error:
                self.stop()
                # Somebody else took a port between our look and the program's: new ports, new data.
                if "address already in use" not in str(error) or attempt == 2:
                    raise
                shutil.rmtree(self.directory / "etcd", ignore_errors=True)
            else:
                return self
        raise AssertionError("unreachable")

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        client, peer, port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{port}"
        self.etcd = Program("etcd", self._etcd_command(client, peer), self.directory / "etcd.log")
        self.kube_apiserver = Program("kube-apiserver", self._apiserver_command(client, port), self.directory / "kube-apiserver.log")
        self._write_keys()
        self.etcd.start().wait_ready(lambda: answers_ok(f"http://127.0.0.1:{client}/readyz"))
        self.start_api_server()
        # The controller that would create it does not run, and admission refuses pods without their service account.
        admin = self.api()
        wait_until(lambda: admin.find("Namespace", "default"), what="the namespace default exists")
        self.add_namespace(NAMESPACE)
        self._add_default_service_account("default")

    def start_api_server(self) -> None:
        """Start kube-apiserver, also again after `kube_apiserver.stop()` or `.kill()`: same address, same data."""
        self.kube_apiserver.start().wait_ready(lambda: answers_ok(f"{self.url}/readyz"), timeout=60)

    def stop(self) -> None:
        """End everything that this control plane started."""
        self.stop_extras()
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self.kube_apiserver.stop()
        self.etcd.stop()

    def stop_extras(self) -> None:
        """End what was started on demand, newest first."""
        while self._extras:
            self._extras.pop().stop()

    def tails(self, lines: int = 15) -> str:
        """Return the last lines of every program's log."""
        return "\n".join(program.tail(lines) for program in (self.etcd, self.kube_apiserver, *self._extras))

    # Who calls, and how

    @property
    def certificate_authority(self) -> Path:
        """The certificate that vouches for kube-apiserver's; it generates both when it starts."""
        return self.directory / "certificates" / "apiserver.crt"

    def api(self, user: str = "admin") -> ApiServer:
        """Return the client of a user of `USERS`; the same object for the same user."""
        if user not in self._clients:
            self._clients[user] = ApiServer(self.kubeconfig(user))
        return self._clients[user]

    def kubeconfig(self, user: str = "admin", *, server: str | None = None) -> Path:
        """Write the kubeconfig of a user of `USERS`; ``server`` is another way to the API server, for example `FaultProxy.url`."""
        return self.kubeconfig_of_token(user, self._tokens[user], server=server)

    def kubeconfig_of_token(self, name: str, token: str, *, server: str | None = None) -> Path:
        """Write the kubeconfig of whoever holds ``token`` (see `service_account_token`); ``name`` is for the file's name."""
        url = server or self.url
        path = self.directory / "kubeconfigs" / f"{name}@{url.rpartition(':')[2]}.json"
        path.parent.mkdir(exist_ok=True)
        cluster = {"server": url, **({"certificate-authority": str(self.certificate_authority)} if url.startswith("https:") else {})}
        named = {
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name, "namespace": "default"}}],
        }
        content = orjson.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "e2e", **named}, option=orjson.OPT_INDENT_2)
        if not path.exists() or path.read_bytes() != content:  # a program may be reading it
            path.write_bytes(content)
        return path

    def service_account_token(self, name: str, namespace: str = NAMESPACE) -> str:
        """Request a real token of an existing ServiceAccount (TokenRequest), as a pod's projected volume has."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = self.api().request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
        return str(answer["status"]["token"])

    def kubectl(self, *arguments: str | Path, user: str = "admin", kubeconfig: Path | None = None, check: bool = True, stdin: str = "") -> str:
        """Run kubectl as a user, or with a kubeconfig, and return what it printed; with ``check`` a failure is an AssertionError with its stderr, else stderr is appended."""
        done = subprocess.run(
            [self.programs["kubectl"], "--kubeconfig", kubeconfig or self.kubeconfig(user), *arguments],
            env={**os.environ, "HOME": str(self.directory), "KUBECACHEDIR": str(self.directory / "kubectl-cache")},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if not check:
            return done.stdout + done.stderr
        assert done.returncode == 0, f"kubectl {' '.join(map(str, arguments))}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def add_namespace(self, name: str, tenant: str | None = "alice") -> str:
        """Create a namespace in which pods are admitted and ``tenant`` has the rights of the ClusterRole `edit`; one that exists is left as it is."""
        admin = self.api()
        if admin.find("Namespace", name) is None:
            admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self._add_default_service_account(name)
        if tenant is not None:
            self.let_edit(tenant, name)
        return name

    def let_edit(self, user: str, namespace: str) -> None:
        """Give a user what `edit` gives. `edit` itself is empty here: the controller that fills it from these two does not run."""
        for role in ("system:aggregate-to-edit", "system:aggregate-to-view"):
            self.api().apply(
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "RoleBinding",
                    "metadata": {"name": f"{user}-{role.rpartition('-')[2]}", "namespace": namespace},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USERS[user].name}],
                }
            )

    def _add_default_service_account(self, namespace: str) -> None:
        if self.api().find("ServiceAccount", "default", namespace) is None:
            self.api().create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}})

    # On demand

    def start_scheduler(self, configuration: JsonObject) -> Program:
        """Start kube-scheduler, under its own account, with a KubeSchedulerConfiguration (`objects.scheduler_configuration` makes one).

        Replaced in it: kubeconfig, leader election (off), and client limits high enough that kube-scheduler is not what a test waits for.
        """
        path = self.directory / f"scheduler-{len(self._extras)}.json"
        connection = {"kubeconfig": str(self.kubeconfig("kube-scheduler")), "qps": 5000, "burst": 5000}
        path.write_bytes(orjson.dumps({**configuration, "clientConnection": connection, "leaderElection": {"leaderElect": False}}))
        port = free_port()
        command = (self.programs["kube-scheduler"], "--config", path, *_secure_port(port), "--authentication-tolerate-lookup-failure=true", "-v=2")
        # /readyz also waits for its informers to have synced.
        return self.run("kube-scheduler", command).wait_ready(lambda: answers_ok(f"https://127.0.0.1:{port}/readyz"))

    def start_controller_manager(self, controllers: str = "garbage-collector-controller") -> Program:
        """Start kube-controller-manager with these controllers (comma-separated).

        The garbage collector looks for new kinds only every 30 s: apply the CRD before starting it.
        """
        port = free_port()
        flags = ("--kubeconfig", self.kubeconfig(), f"--controllers={controllers}", "--leader-elect=false", *_secure_port(port))
        program = self.run("kube-controller-manager", (self.programs["kube-controller-manager"], *flags))
        return program.wait_ready(lambda: answers_ok(f"https://127.0.0.1:{port}/healthz"))

    def start_kwok(self) -> Program:
        """Start KWOK over all nodes: bound pods run, end when labelled `e2e: ends`, and go when deleted (kwok-stages.yaml)."""
        port = free_port()
        flags = ("--kubeconfig", self.kubeconfig(), "--config", STAGES, "--manage-all-nodes=true", f"--server-address=127.0.0.1:{port}")
        return self.run("kwok", (self.programs["kwok"], *flags)).wait_ready(lambda: answers_ok(f"http://127.0.0.1:{port}/healthz"))

    def run(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Program:
        """Start any program of a test; its log is beside the others, and `stop_extras` ends it."""
        taken = sum(1 for path in self.directory.glob("*.log") if path.name.startswith(name))
        program = Program(name, command, self.directory / f"{name}-{taken + 1}.log", environment)
        self._extras.append(program)
        return program.start()

    # Commands

    def _write_keys(self) -> None:
        key = base64.encodebytes(_P256_HEAD + secrets.token_bytes(32) + _P256_TAIL).decode()
        (self.directory / "service-accounts.pem").write_text(f"-----BEGIN EC PRIVATE KEY-----\n{key}-----END EC PRIVATE KEY-----\n")
        lines = (f'{self._tokens[short]},{user.name},{short},"{",".join(user.groups)}"\n' for short, user in USERS.items())
        (self.directory / "tokens.csv").write_text("".join(lines))

    def _etcd_command(self, client: int, peer: int) -> list[str | Path]:
        url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        return [
            self.programs["etcd"],
            *("--data-dir", self.directory / "etcd"),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"default={peer_url}"),
            *("--unsafe-no-fsync", "--log-level", "error"),
        ]

    def _apiserver_command(self, etcd: int, port: int) -> list[str | Path]:
        key = self.directory / "service-accounts.pem"
        return [
            self.programs["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            *_secure_port(port),
            # A loopback address makes no endpoint of the service `kubernetes`, and finding another needs a default route.
            *("--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"),
            f"--cert-dir={self.directory / 'certificates'}",
            *(
                "--service-account-issuer=https://kubernetes.default",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
            ),
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            *("--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true"),
            "--delete-collection-workers=8",
        ]


def _secure_port(port: int) -> tuple[str, str]:
    return "--bind-address=127.0.0.1", f"--secure-port={port}"
