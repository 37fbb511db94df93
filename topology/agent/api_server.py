"""Raw requests to the API server: dicts of JSON in and out, authentication by the official client.

Used by `publish` and `handoff`. Configuration and credentials (kubeconfig, or the pod's own account with its rotated token) are the official client's, and so is
the pool of connections with its TLS; its API classes are not used, since they decode into models and send custom resources through another door.
A request is sent once, and a watch opened once: who calls decides about trying again.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError
from yaml import YAMLError

from topology.errors import InputError, LinkwiseError

JsonObject = dict[str, Any]

JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"  # every JSON text is YAML
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

_TIMEOUT_S: Final = 5.0  # for connecting, and for each read
_WATCH_SILENCE_S: Final = 150.0  # the API server sends a bookmark a minute, so a connection that is silent for longer is dead
_CHUNK: Final = 64 * 1024


class NoAnswerError(LinkwiseError):
    """The API server gave no answer: refused, reset, timed out."""


class RefusedError(LinkwiseError):
    """The API server answered with an error status; ``reason`` is the Status object's, for example `NotFound`, empty where it sent none."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Body:
    """What a request carries, and the media type that says how it is meant."""

    value: JsonObject
    content_type: str = JSON


class ApiServer:
    """One API server, as one account."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._host = str(configuration.host).rstrip("/")
        self._pool: PoolManager = RESTClientObject(configuration).pool_manager

    @staticmethod
    def connect(kubeconfig: Path | None = None, context: str | None = None) -> "ApiServer":
        """Return a client by kubeconfig, or by the pod's own account where there is none; nothing is sent yet.

        Raises InputError with a sentence where there is neither.
        """
        in_cluster = kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ
        where = "the pod's service account" if in_cluster else f"kubeconfig {kubeconfig or os.environ.get('KUBECONFIG') or '~/.kube/config'}"
        try:
            return ApiServer(_in_cluster() if in_cluster else _by_kubeconfig(kubeconfig, context))
        # What a damaged file makes of the client differs by the damage: its own error, YAML's, a missing key, a value of another type.
        except (ConfigException, YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = " ".join(str(error).split())
            raise InputError(f"{where} cannot be used: {why}; accepted: --kubeconfig FILE, or a pod with a service account") from error

    def get(self, path: str, *, accept: str = JSON) -> JsonObject | None:
        """Return an object as the API server's cache has it, None where it does not exist; raises as `request` does.

        An unknown kind of object is answered with 404 as well, but not with a Status.
        """
        try:
            return self.request("GET", path, {"resourceVersion": "0"}, accept=accept)
        except RefusedError as error:
            if error.reason == "NotFound":
                return None
            raise

    def request(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Body | None = None, *, accept: str = JSON) -> JsonObject:
        """Send one request and return the decoded answer; raises RefusedError for an error status, NoAnswerError where there is no answer."""
        url = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            headers = self._headers(body, accept)
            data = None if body is None else json.dumps(body.value).encode()
            response = self._pool.request(method, url, body=data, headers=headers, timeout=_TIMEOUT_S, retries=False, redirect=False)
        except (HTTPError, OSError, ConfigException) as error:  # the latter two: a token that cannot be read
            raise NoAnswerError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        answer = _decoded(response.data)
        if response.status >= 300 or answer is None:
            message = (answer or {}).get("message") or response.data[:200].decode(errors="replace").strip() or "no message"
            raise RefusedError(response.status, str((answer or {}).get("reason") or ""), f"{method} {path} answered {response.status}: {message}")
        return answer

    def watch(self, path: str, query: Mapping[str, str], opened: Callable[[Callable[[], None]], None]) -> Iterator[JsonObject]:
        """Yield the events of one watch until it ends; raises as `request` does, and NoAnswerError where it breaks off.

        ``opened`` is called once, with what ends the watch from another thread.
        """
        told = f"GET {path}?watch"
        try:
            url = f"{self._host}{path}?{urlencode({'watch': 'true', 'allowWatchBookmarks': 'true', **query})}"
            timeout = Timeout(connect=_TIMEOUT_S, read=_WATCH_SILENCE_S)
            response = self._pool.request(
                "GET", url, headers=self._headers(None, JSON), timeout=timeout, retries=False, redirect=False, preload_content=False
            )
        except (HTTPError, OSError, ConfigException) as error:
            raise NoAnswerError(f"{told}: {str(error) or type(error).__name__}") from error
        try:
            opened(response.shutdown)
            if response.status >= 300:
                raise RefusedError(response.status, "", f"{told} answered {response.status}: {response.read(200).decode(errors='replace')}")
            rest = b""
            for chunk in response.stream(_CHUNK, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = _decoded(line)
                    if event is not None:
                        yield event
        except (HTTPError, OSError, ValueError) as error:  # the last one: it was closed meanwhile
            raise NoAnswerError(f"{told}: {str(error) or type(error).__name__}") from error
        finally:
            response.close()

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _headers(self, body: Body | None, accept: str) -> dict[str, str]:
        headers = {"Accept": accept, "User-Agent": "linkwise-agent"}
        if body is not None:
            headers["Content-Type"] = body.content_type
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        return headers


def _in_cluster() -> Configuration:
    configuration = Configuration()
    load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # the official client has no types here
    return configuration


def _by_kubeconfig(kubeconfig: Path | None, context: str | None) -> Configuration:
    configuration = Configuration()
    load_kube_config(None if kubeconfig is None else str(kubeconfig), context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
    if not str(configuration.host).startswith(("https://", "http://")):
        raise ConfigException(f"its cluster has the server {configuration.host!r}, which is no URL")
    return configuration


def _decoded(data: bytes) -> JsonObject | None:
    """Return the object that an answer is, None where it is none."""
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
