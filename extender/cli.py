"""The command `linkwise`: the extender's commands, with those of the machine side (`topology.cli`) mounted beside them.

Every command imports what it needs inside, so that `linkwise inspect` does not pay for a web server. Bad input ends in one sentence on stderr and
exit status 2, never in a traceback.
"""

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from topology.cli import app, printable
from topology.errors import InputError

# What a file says that stdout was sent to; a pipe that is closed is typer's business.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@app.command()
def serve(
    snapshot: Annotated[
        Path | None, typer.Option(help="Serve this cluster: what `kubectl get nodes,gputopologies,pods -A -o yaml` (or json) prints.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8888,
    bindings: Annotated[Path | None, typer.Option(help="With --snapshot: append each Binding to this file, one JSON line each.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Without --snapshot: the cluster to serve; inside a pod its own account is used.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate to serve with (PEM); needs --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate (PEM).")] = None,
    client_ca: Annotated[Path | None, typer.Option(help="Let in only clients with a certificate of this authority (PEM).")] = None,
    probe_port: Annotated[int, typer.Option(help="Serve health and metrics on this port too, without TLS.", min=0, max=65535)] = 0,
) -> None:
    """Run the extender (filter, prioritize, preempt, bind) on a cluster, or on a snapshot of one."""
    from extender.serve_command import ServeOptions, serve_cluster_command, serve_snapshot_command

    options = ServeOptions(host, port, probe_port, tls_cert, tls_key, client_ca)
    if snapshot is not None:
        if kubeconfig is not None or context is not None or probe_port:
            raise InputError("--kubeconfig, --context and --probe-port go without --snapshot: a snapshot is served without any cluster, on one port")
        serve_snapshot_command(snapshot, bindings, options, _tell)
    elif bindings is not None:
        raise InputError("--bindings goes with --snapshot; on a cluster bindings are posted to the API server")
    else:
        serve_cluster_command(kubeconfig, context, options, _tell)


@app.command()
def explain(
    kind: Annotated[str, typer.Argument(metavar="pod", help="What to explain; only pods so far.")],
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME")],
    server: Annotated[
        str | None,
        typer.Option(
            envvar="LINKWISE_SERVER", help="URL of the extender; if not given one on this machine, else the cluster's, through the API server."
        ),
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="The cluster whose extender to ask, through its API server.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    service: Annotated[
        str | None,
        typer.Option(help="The extender's service if not that of the manifests: NAMESPACE/NAME:PORT; NAMESPACE/https:NAME:PORT where it serves TLS."),
    ] = None,
    output: Annotated[str, typer.Option(help="text or json.")] = "text",
    nodes: Annotated[int, typer.Option(help="How many nodes of each kind to print.", min=1)] = 20,
) -> None:
    """Tell why a pod went where it went, or why nowhere: every node's score or reason."""
    import orjson

    from extender.explain import text
    from extender.explain_client import Way, decision_about

    if kind != "pod":
        raise InputError(f"linkwise explain {kind}: unknown kind; accepted: pod")
    if output not in ("text", "json"):
        raise InputError(f"--output {output}: unknown form; accepted: text, json")
    decision = decision_about(name, Way(server, kubeconfig, context, service))
    typer.echo(orjson.dumps(decision, option=orjson.OPT_INDENT_2).decode() if output == "json" else text(decision, nodes))


@app.command()
def snapshot(
    output: Annotated[Path, typer.Option(help="File to write; `linkwise serve --snapshot` reads it.", dir_okay=False)],
    kubeconfig: Annotated[Path | None, typer.Option(help="The cluster to look at; inside a pod its own account is used.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    form: Annotated[str | None, typer.Option("--format", help="yaml or json; if not given yaml, above 1,000 nodes json.")] = None,
) -> None:
    """Write a cluster into a file, without anything that Linkwise does not read: no environments, arguments or images of pods."""
    from extender.snapshot_command import snapshot_command

    snapshot_command(output, kubeconfig, context, form, typer.echo)


@app.command()
def demo(
    pods: Annotated[int, typer.Option(help="How many pods come.", min=2, max=1000)] = 24,
    seed: Annotated[int, typer.Option(help="Another seed is another stream of pods.")] = 5,
    svg: Annotated[Path | None, typer.Option(help="Draw the first pod on its machine, placed both ways, into this file.", dir_okay=False)] = None,
) -> None:
    """Place a stream of GPU pods on a sample cluster, beside plain counting: no cluster and no GPU needed."""
    # The default seed's gain is near the middle of those of the first dozen seeds, and its stream has pods of every size and wish.
    from rich.console import Console
    from rich.progress import Progress

    from extender.demo import for_people, picture, time_line, tour
    from topology.inspection.text import plain

    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        placing = progress.add_task("placing pods", total=None)
        found = tour(pods, seed, lambda done, of: progress.update(placing, completed=done, total=of))
    console = Console()
    if console.is_terminal:
        console.print(for_people(found))
    else:
        typer.echo(plain(for_people(found), width=100), nl=False)
    typer.echo(time_line(found))
    if svg is not None:
        _write(svg, picture(found))


@app.command()
def simulate(
    workload: Annotated[
        Path,
        typer.Argument(
            metavar="WORKLOAD",
            help="Pods as kubectl prints them (YAML or JSON), with annotations simulate.linkwise.dev/arrives-at, /runs-for, /every (seconds) and /copies; or a CSV in "
            "the form of the openb trace.",
        ),
    ],
    snapshot: Annotated[
        Path | None,
        typer.Option(help="The cluster: what `kubectl get nodes,gputopologies,pods -A -o yaml` (or json) prints; if not given the demo's."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="pack, spread, gpuallocator, or count (first fit by number of GPUs); repeatable. If none is given pack and count."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop pods that find no room, instead of letting them wait.")] = False,
    backfill: Annotated[bool, typer.Option("--backfill", help="Let others pass a waiting pod.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="No pod ever leaves.")] = False,
    gpu_gib: Annotated[
        int | None,
        typer.Option(help="GiB that a whole GPU of a CSV trace counts; if not given those of the cluster's smallest GPU.", min=1, max=1024),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write figures, curves and every pod into this file.", dir_okay=False)] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the curves into this file.", dir_okay=False)] = None,
) -> None:
    """Replay a workload on a snapshot under one or more policies, by the code that places pods in production."""
    from rich.console import Console
    from rich.progress import Progress

    from extender.simulate import Asked, simulate_command
    from extender.simulate.replay import Rules
    from topology.inspection.text import plain

    asked = Asked(workload, snapshot, tuple(dict.fromkeys(policy or ("pack", "count"))), Rules(drop, backfill, stay), gpu_gib, json_file, svg)
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        bar = progress.add_task("reading", total=None)
        found, problems = simulate_command(asked, lambda name, done, of: progress.update(bar, description=name, completed=done, total=of))
    for problem in problems:
        typer.echo(f"warning: {problem}", err=True)
    console = Console()
    if console.is_terminal:
        console.print(found)
    else:
        typer.echo(plain(found, width=100), nl=False)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--svg {path} cannot be written: {error.strerror or error}") from error
    typer.echo(f"Picture: {path}")


def _tell(text: str) -> None:
    """Tell what nobody has to hear: a program that serves goes on where its stdout is closed or full."""
    try:
        typer.echo(text)
    except OSError:
        _stdout_to_nowhere()


def main() -> None:
    """Run the command line; bad input is one sentence and exit status 2, output that finds no room one and exit status 1."""
    _open_streams()
    try:
        app()
    except InputError as error:
        typer.echo(f"linkwise: {printable(str(error))}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _stdout_to_nowhere()
        typer.echo(f"linkwise: the output cannot be written: {error.strerror}", err=True)
        sys.exit(1)


def _open_streams() -> None:
    """Give a process that was started with closed streams ones that lead nowhere, and let stdout replace what its encoding does not have.

    Without the first, the next file or socket gets the number of stdout, and what is printed goes there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _stdout_to_nowhere() -> None:
    """Let what is left of the output vanish: Python would try to write it once more at its end, and tell of that failure too."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: a stdout without a file, as under test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
