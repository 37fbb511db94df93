"""All objects of one kind, once: pages of raw JSON, for a command that looks at a cluster and ends.

Used by `linkwise snapshot`. The extender itself follows its objects for ever and lists through `watch.Reflector`. Items come as they are stored, with the
kind and version that the API server leaves out in a list.
"""

from typing import Any, Final

from extender.kube.client import ApiRefusedError, KubeClient
from extender.kube.watch import Resource

JsonObject = dict[str, Any]

PAGE: Final = 500  # each is decoded as a whole
_ATTEMPTS: Final = 3  # a list whose version is compacted between two pages starts again; that happens after five minutes


async def list_all(client: KubeClient, resource: Resource) -> list[JsonObject]:
    """Return every object of a kind in the order of the API server; raises ApiRefusedError and NoAnswerError."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await _pages(client, resource)
        except ApiRefusedError as error:
            if error.status != 410 or attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


async def _pages(client: KubeClient, resource: Resource) -> list[JsonObject]:
    found: list[JsonObject] = []
    query = {"limit": str(PAGE)}
    while True:
        page = await client.request("GET", resource.path, query)
        found += [{**item, "apiVersion": page.get("apiVersion"), "kind": resource.kind} for item in page.get("items") or ()]
        onward = (page.get("metadata") or {}).get("continue")
        if not onward:
            return found
        query = {"limit": str(PAGE), "continue": onward}
