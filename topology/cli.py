"""The commands of the machine side: `linkwise inspect`, `linkwise links`, `linkwise agent`, `linkwise doctor`.

`extender.cli` takes ``app`` and adds its own commands to it, so that there is one `linkwise`. Every command imports what it needs when it runs: `--help`
must not pay for numpy. Bad input ends in one sentence on stderr and exit status 2, never in a traceback; what the texts mean is `topology.inspection`'s
business, what a node publishes is `topology.agent`'s.
"""

import re
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from topology.errors import LinkwiseError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from topology.inspection import Report
    from topology.inventory import Inventory
    from topology.nvidia_smi import P2pMatrix

BAD_INPUT: Final = 2
BROKEN_LINK: Final = 1
MOST_BYTES: Final = 16 * 1024 * 1024  # of one input; the largest `-q -x` of 16 GPUs with MIG is below 1 MB
STDIN: Final = "-"

app = typer.Typer(
    name="linkwise",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"linkwise {version('linkwise')}")
        raise typer.Exit


@app.callback()
def linkwise(_: Annotated[bool, typer.Option("--version", help="Print the version and end.", callback=_tell_version, is_eager=True)] = False) -> None:
    """Places GPU pods by their links."""


class Output(StrEnum):
    """What `inspect` prints."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    SVG = "svg"


class TableOutput(StrEnum):
    """What `links` and `doctor` print."""

    TEXT = "text"
    JSON = "json"


class HandOffKind(StrEnum):
    """Which hand-off `doctor` looks for."""

    OFF = "off"
    CDI = "cdi"
    IDS = "ids"


class Sets(StrEnum):
    """Which sets of GPUs `inspect` lists."""

    BEST = "best"
    ALL = "all"


@app.command()
def inspect(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE]...", help="Texts of `nvidia-smi topo -m`; none or - reads stdin.")] = None,
    output: Annotated[Output, typer.Option(help="For people, one JSON object a line, graphviz text, or a picture.")] = Output.TEXT,
    sets: Annotated[Sets, typer.Option(help="The best set of GPUs of every size, or all sets.")] = Sets.BEST,
    free: Annotated[
        str | None, typer.Option(metavar="GPUS", help="Look for sets among these GPUs only: numbers and ranges, for example 0,3,5-7.")
    ] = None,
    p2p: Annotated[
        str | None, typer.Option(metavar="FILE", help="Output of nvidia-smi topo -p2p r: pairs without peer access count as going through the host.")
    ] = None,
    gpus: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="What the GPUs are: output of nvidia-smi -L, --query-gpu … csv, -q -x or nvlink -s.")
    ] = None,
) -> None:
    """Tell what the links of a machine are worth: its graph, its classes of links, its best sets of GPUs."""
    sources = files or [STDIN]
    if output is Output.SVG and len(sources) > 1:
        _stop(f"--output svg draws one machine, and {len(sources)} files were given; run it once for each")
    if [*sources, *(gpus or []), *([p2p] if p2p else [])].count(STDIN) > 1:
        _stop("- stands for stdin, which can be read only once")
    asked = _Asked(sets, None if free is None else _numbers(free), _read_inventory(gpus) if gpus else None, _read_p2p(p2p) if p2p else None)
    _forgiving_stdout()
    failed = False
    for at, source in enumerate(sources):
        report = _report(source, asked)
        failed = failed or report.error is not None
        _print_report(report, output, first=at == 0)
    if failed:
        raise typer.Exit(BAD_INPUT)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What `inspect` was asked about every input."""

    sets: Sets
    free: frozenset[int] | None
    inventory: "Inventory | None"
    p2p: "P2pMatrix | None"


def _numbers(text: str) -> frozenset[int]:
    """Read numbers of GPUs: `0,3,5-7`."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,3})(?:\s*-\s*([0-9]{1,3}))?\s*", part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            _stop(f"--free {printable(text)} cannot be read; accepted: numbers of GPUs and ranges, for example 0,3,5-7")
        numbers.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return frozenset(numbers)


def _report(source: str, asked: _Asked) -> "Report":
    from topology.inspection import inspect as look
    from topology.inspection import unreadable

    name = "stdin" if source == STDIN else printable(source)
    try:
        text = _read(source)
    except (OSError, ValueError) as error:
        return unreadable(name, f"cannot read {name}: {_why(error)}")
    return look(name, text, asked.inventory, "all" if asked.sets is Sets.ALL else "best", asked.free, asked.p2p)


def _print_report(report: "Report", output: Output, *, first: bool) -> None:
    from topology.inspection import dot_of, svg_of

    if output is Output.JSON:
        typer.echo(report.json_line())
    elif report.error is not None:
        typer.echo(f"linkwise: {report.source}: {printable(report.error.message)} ({report.error.kind})", err=True)
    elif output is Output.TEXT:
        from topology.inspection.text import report_for_people

        if not first:
            typer.echo()
        _print_for_people(report_for_people(report))
    else:
        typer.echo(svg_of(report) if output is Output.SVG else dot_of(report), nl=False)


def _read_inventory(files: list[str]) -> "Inventory":
    from topology.inventory import merge_all
    from topology.nvidia_smi import read_inventory

    found = []
    for file in files:
        try:
            found.append(read_inventory(_read(file)))
        except (OSError, ValueError, LinkwiseError) as error:
            _stop(f"--gpus {printable(file)}: {_why(error)}")
    return merge_all(found)


def _read_p2p(file: str) -> "P2pMatrix":
    from topology.nvidia_smi import read_p2p

    try:
        return read_p2p(_read(file))
    except (OSError, ValueError, LinkwiseError) as error:
        _stop(f"--p2p {printable(file)}: {_why(error)}")


@app.command()
def links(output: Annotated[TableOutput, typer.Option(help="Tables for people, or one JSON object.")] = TableOutput.TEXT) -> None:
    """Print every rate that Linkwise counts with, and where it comes from."""
    from topology.inspection.rates_table import rates_for_people, rates_json

    _forgiving_stdout()
    if output is TableOutput.JSON:
        typer.echo(rates_json())
    else:
        _print_for_people(rates_for_people())


@app.command()
def agent(
    node_name: Annotated[
        str | None, typer.Option(envvar="LINKWISE_AGENT_NODE_NAME", help="The Kubernetes node, and the name of its GPUTopology.")
    ] = None,
    nvidia_smi: Annotated[
        str | None, typer.Option(metavar="PATH", envvar="LINKWISE_AGENT_NVIDIA_SMI", help="nvidia-smi; the one on PATH if not given.")
    ] = None,
    timeout: Annotated[float, typer.Option(envvar="LINKWISE_AGENT_TIMEOUT_S", help="Seconds that one call of nvidia-smi may take.", min=0.1)] = 20.0,
    sysfs_root: Annotated[Path, typer.Option(envvar="LINKWISE_AGENT_SYSFS_ROOT", help="Where sysfs is mounted.")] = Path("/sys"),
    once: Annotated[bool, typer.Option("--once", help="Look once, print and end; goes with --dry-run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the GPUTopology instead of publishing it.")] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(envvar="LINKWISE_AGENT_KUBECONFIG", help="The cluster to publish to; inside a pod its own account is used.")
    ] = None,
    context: Annotated[str | None, typer.Option(envvar="LINKWISE_AGENT_CONTEXT", help="Context of the kubeconfig.")] = None,
    metrics_port: Annotated[
        int, typer.Option(envvar="LINKWISE_AGENT_METRICS_PORT", help="Serve /metrics and /healthz on this port; 0: do not.", min=0, max=65535)
    ] = 0,
) -> None:
    """Publish this node's GPUs and links as its GPUTopology, until a signal; --once --dry-run prints it instead.

    Exit status of --once: 3 where the node has no GPU, 2 where nvidia-smi or the driver failed. Every pace is a variable LINKWISE_AGENT_…_S.
    """
    if once != dry_run:
        _stop("--once and --dry-run go together: look once and print; without them the agent runs and publishes")
    if not node_name:
        _stop("the agent does not know its node; give --node-name or set LINKWISE_AGENT_NODE_NAME")
    from topology.agent import agent_settings, exit_status
    from topology.agent import once as look_once

    _forgiving_stdout()
    try:
        if once:
            typer.echo(look_once(node_name, nvidia_smi, sysfs_root, timeout), nl=False)
            return
        more = {"kubeconfig": kubeconfig, "context": context, "metrics_port": metrics_port}
        settings = agent_settings(node_name, nvidia_smi, sysfs_root, timeout, **more)
        from topology.agent.running import run_agent
        from topology.log_lines import write_log_lines

        write_log_lines()
        run_agent(settings)
    except LinkwiseError as error:
        typer.echo(f"linkwise: {printable(str(error))}", err=True)
        raise typer.Exit(exit_status(error)) from error


@app.command()
def doctor(
    node_name: Annotated[
        str | None, typer.Option(envvar=["LINKWISE_AGENT_NODE_NAME", "NODE_NAME"], help="The Kubernetes node; this machine's name if not given.")
    ] = None,
    nvidia_smi: Annotated[
        str | None, typer.Option(metavar="PATH", envvar="LINKWISE_AGENT_NVIDIA_SMI", help="nvidia-smi; the one on PATH if not given.")
    ] = None,
    hand_off: Annotated[
        HandOffKind | None, typer.Option(envvar="LINKWISE_AGENT_HAND_OFF", help="The hand-off that should be there; as it looks if not given.")
    ] = None,
    agent_port: Annotated[
        int, typer.Option(envvar="LINKWISE_AGENT_METRICS_PORT", help="Where the agent of this node serves /healthz.", min=0, max=65535)
    ] = 8890,
    kubeconfig: Annotated[
        Path | None, typer.Option(envvar="LINKWISE_AGENT_KUBECONFIG", help="The cluster; inside a pod its own account is used.")
    ] = None,
    context: Annotated[str | None, typer.Option(envvar="LINKWISE_AGENT_CONTEXT", help="Context of the kubeconfig.")] = None,
    server: Annotated[str | None, typer.Option(metavar="URL", help="The extender; through the API server if not given.")] = None,
    service: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME:PORT", help="The extender's service behind the API server.")
    ] = "linkwise-system/linkwise-extender:extender",
    runtime_socket: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Socket of containerd or CRI-O; looked for in the usual places if not given.")
    ] = None,
    output: Annotated[TableOutput, typer.Option(help="A line a link, or one JSON object.")] = TableOutput.TEXT,
) -> None:
    """Walk the chain from nvidia-smi to the extender on this node and name the first broken link, with its cure; it changes nothing.

    Exit status 1 where a link is broken. Run it in the agent's pod, or as root on the node, which shows more. LINKWISE_AGENT_… are those of the agent.
    """
    import socket

    from topology.agent import agent_settings
    from topology.doctor import Asked, examine, first_broken
    from topology.doctor.node import RUNTIME_SOCKETS
    from topology.doctor.printing import as_json, conclusion, line_of

    _forgiving_stdout()
    try:
        settings = agent_settings(node_name or socket.gethostname().lower(), nvidia_smi, kubeconfig=kubeconfig, context=context)
    except LinkwiseError as error:
        _stop(printable(str(error)))
    sockets = RUNTIME_SOCKETS if runtime_socket is None else (runtime_socket,)
    chain = []
    for one in examine(Asked(settings, None if hand_off is None else hand_off.value, agent_port, server, service, sockets)):
        chain.append(one)
        if output is TableOutput.TEXT:
            typer.echo(line_of(one))
    typer.echo(as_json(settings.node_name, chain) if output is TableOutput.JSON else conclusion(settings.node_name, chain))
    if first_broken(chain) is not None:
        raise typer.Exit(BROKEN_LINK)


# --- reading and printing -------------------------------------------------------------------------------------------


def _read(source: str) -> str:
    """Return the text of a file or of stdin, damaged bytes replaced; raises OSError, or ValueError for one that is too large."""
    if source == STDIN:
        if sys.stdin.isatty():
            typer.echo("linkwise: paste the output of `nvidia-smi topo -m`, then Ctrl-D", err=True)
        raw = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        with Path(source).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES // 1024 // 1024} MiB, which no output of nvidia-smi is")
    return _decoded(raw)


def _decoded(raw: bytes) -> str:
    """Windows redirects nvidia-smi into UTF-16, with a byte order mark; everything else is UTF-8 or close to it."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    return raw.decode("utf-8-sig", errors="replace")


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def printable(text: str) -> str:
    """Return a file name or a message as a terminal may be given it: no control characters, no lone surrogates."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _print_for_people(content: "RenderableType") -> None:
    from rich.console import Console

    from topology.inspection.text import plain

    console = Console()
    if console.is_terminal:
        console.print(content)
    else:
        typer.echo(plain(content), nl=False)


def _forgiving_stdout() -> None:
    """Replace what the terminal's encoding does not have, instead of ending in a traceback."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _stop(sentence: str) -> NoReturn:
    typer.echo(f"linkwise: {sentence}", err=True)
    raise typer.Exit(BAD_INPUT)
