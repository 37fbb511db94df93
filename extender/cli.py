"""The command `linkwise`: the extender's commands, with those of the machine side (`topology.cli`) mounted beside them.

Every command imports what it needs inside, so that `linkwise inspect` does not pay for a web server. Bad input ends in one sentence on stderr and
exit status 2, never in a traceback.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from topology.cli import app

from topology.errors import InputError


@app.command()
def serve(
    snapshot: Annotated[Path, typer.Option(help="Serve this cluster: what `kubectl get nodes,gputopologies,pods -A -o yaml` (or json) prints.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8888,
    bindings: Annotated[Path | None, typer.Option(help="Append each Binding to this file, one JSON line each.")] = None,
) -> None:
    """Run the extender (filter, prioritize, bind) on a snapshot of a cluster."""
    from extender.app import from_snapshot
    from extender.server import run
    from extender.settings import Settings
    from extender.snapshot_file import read_snapshot

    application, problems = from_snapshot(read_snapshot(snapshot), Settings(), bindings)
    for problem in problems:
        typer.echo(f"warning: {problem}", err=True)
    run(application, host, port, announce=lambda url: typer.echo(f"Linkwise serves {snapshot} on {url}"))


@app.command()
def explain(
    kind: Annotated[str, typer.Argument(metavar="pod", help="What to explain; only pods so far.")],
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME")],
    server: Annotated[str, typer.Option(envvar="LINKWISE_SERVER", help="URL of the extender.")] = "http://127.0.0.1:8888",
    output: Annotated[str, typer.Option(help="text or json.")] = "text",
    nodes: Annotated[int, typer.Option(help="How many nodes of each kind to print.", min=1)] = 20,
) -> None:
    """Tell why a pod went where it went, or why nowhere: every node's score or reason."""
    import orjson

    from extender.explain import text
    from extender.explain_client import fetch

    if kind != "pod":
        raise InputError(f"linkwise explain {kind}: unknown kind; accepted: pod")
    if output not in ("text", "json"):
        raise InputError(f"--output {output}: unknown form; accepted: text, json")
    decision = fetch(server, name)
    typer.echo(orjson.dumps(decision, option=orjson.OPT_INDENT_2).decode() if output == "json" else text(decision, nodes))


def main() -> None:
    """Run the command line; bad input is one sentence and exit status 2."""
    try:
        app()
    except InputError as error:
        typer.echo(f"linkwise: {error}", err=True)
        sys.exit(2)
