"""The HTTP client with which tests call what they have started: extenders, agents, the health of the Kubernetes programs.

`wait_until` asks twenty times a second, so a call has to be cheap. A client of its own for each call, or a default TLS context, reads the machine's
certificates anew each time: 30 ms of processor time, most of what a test process used. Here nobody's certificate is looked at, as everything is on
127.0.0.1; calls of the API server go through `tests.e2e.api_server`, which does look.
"""

import ssl

import httpx


def _unverified() -> ssl.SSLContext:
    """Return a context that has loaded no certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# A connection a call: programs die and come back on the same port, and a kept connection would tell of that instead of the answer.
# The environment's proxies are for the world outside.
HTTP = httpx.Client(verify=_unverified(), limits=httpx.Limits(max_keepalive_connections=0), trust_env=False, timeout=10)


def answers_ok(url: str) -> bool:
    """Whether a GET is answered with 200 within a second, which is a sign of life."""
    try:
        return HTTP.get(url, timeout=1).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
