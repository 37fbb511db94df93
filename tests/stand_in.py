"""A stand-in for nvidia-smi, and for the sysfs and procfs of the node it runs on: real files and a real process, made from a `SampleMachine`.

The text follows what drivers 535 and later print: TAB-separated matrix with an underlined header, three affinity columns, NIC legend. What a test
wants otherwise it replaces by command: ``write_nvidia_smi(directory, DGX1V, replaced={TOPO: Answer(text, 255)})``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from extender.sample_machines import SampleMachine

SEED = "node-a"

TOPO = "topo -m"
LIST = "-L"
QUERY = "--query-gpu=index,uuid,pci.bus_id,name,memory.total,memory.used,pcie.link.gen.max,pcie.link.width.max,mig.mode.current,driver_version --format=csv"
OLD_QUERY = "--query-gpu=index,uuid,pci.bus_id,name,memory.total,memory.used,driver_version --format=csv"
NVLINK = "nvlink -s"
XML = "-q -x"
P2P = "topo -p2p r"

# What the tool prints with an exit status, for failures of all its commands.
SENTENCES = {
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n",
    18: "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.127\n",
    127: "bash: nvidia-smi: command not found\n",
    255: "Failed to run topology matrix\n",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command prints and its exit status; ``hang``: it prints that and then nothing more, for ever."""

    text: str = ""
    exit_code: int = 0
    hang: bool = False


def write_nvidia_smi(
    directory: Path,
    machine: SampleMachine,
    *,
    hang: bool = False,
    exit_code: int = 0,
    topo_exit: int = 0,
    replaced: Mapping[str, Answer] | None = None,
    seed: str = SEED,
) -> Path:
    """Write an executable that answers the probe's commands for ``machine``, and return its path.

    ``hang`` and ``exit_code`` speak of every command, ``topo_exit`` of `topo -m` alone, ``replaced`` of any one.
    """
    answers = {command: Answer(text) for command, text in texts(machine, seed).items()}
    if topo_exit:
        answers[TOPO] = Answer(SENTENCES.get(topo_exit, ""), topo_exit)
    if exit_code:
        answers = {command: Answer(SENTENCES.get(exit_code, ""), exit_code) for command in answers}
    if hang:
        answers = {command: Answer(hang=True) for command in answers}
    answers.update(replaced or {})
    directory.mkdir(parents=True, exist_ok=True)
    script = directory / "nvidia-smi"
    script.write_text("".join(_script(directory, answers)), encoding="utf-8")
    script.chmod(0o755)
    return script


def _script(directory: Path, answers: Mapping[str, Answer]) -> Iterator[str]:
    yield '#!/bin/sh\ncase "$*" in\n'
    for n, (command, answer) in enumerate(answers.items()):
        text = directory / f"answer-{n}"
        text.write_text(answer.text, encoding="utf-8")
        # A child, as a hanging tool may have some: ending the shell alone would leave it.
        rest = f"sleep 600 & echo $! > '{directory}/hanging'; wait" if answer.hang else f"exit {answer.exit_code}"
        yield f"'{command}') cat '{text}'; {rest} ;;\n"
    yield "*) echo \"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\"; exit 2 ;;\nesac\n"


def texts(machine: SampleMachine, seed: str = SEED) -> dict[str, str]:
    """Return what nvidia-smi prints for the machine, by command."""
    return {
        TOPO: topo(machine),
        LIST: "".join(f"GPU {i}: {machine.model} (UUID: {uuid})\n" for i, uuid in enumerate(machine.uuids(seed))),
        QUERY: query(machine, seed),
        NVLINK: nvlink(machine, seed),
        XML: xml(machine, seed),
        P2P: p2p(machine.size),
    }


def topo(machine: SampleMachine) -> str:
    """Return the text of `nvidia-smi topo -m`."""
    devices = [f"GPU{i}" for i in range(machine.size)] + [f"NIC{n}" for n in range(len(machine.nics))]
    lines = ["\t\x1b[4m" + "\t".join([*devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"]
    for i, row in enumerate(machine.gpu_rows):
        cells = [" X " if cell == "X" else cell for cell in row.split()] + list(machine.nic_cells()[i])
        lines.append("\t".join([f"GPU{i}", *cells, machine.cpus[i], str(machine.numa_nodes[i]), "", "N/A"]))
    for n in range(len(machine.nics)):
        to_gpus = [machine.nic_cells()[i][n] for i in range(machine.size)]
        to_nics = [" X " if m == n else "SYS" for m in range(len(machine.nics))]
        lines.append("\t".join([f"NIC{n}", *to_gpus, *to_nics, "", "", "", ""]))
    return "\n".join([*lines, _LEGEND, *_nic_legend(machine)]) + "\n"


_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks"""


def _nic_legend(machine: SampleMachine) -> list[str]:
    return ["", "NIC Legend:", "", *(f"  NIC{n}: {name}" for n, name in enumerate(machine.nics)), ""] if machine.nics else []


def p2p(size: int, refused: Mapping[tuple[int, int], str] | None = None) -> str:
    """Return the text of `nvidia-smi topo -p2p r`: OK for all pairs but those, each direction by itself."""
    names = [f"GPU{i}" for i in range(size)]
    rows = [[" X " if i == j else (refused or {}).get((i, j), "OK") for j in range(size)] for i in range(size)]
    lines = ["\t" + "\t".join(names) + "\t", *("\t".join([f" {name}", *row, ""]) for name, row in zip(names, rows, strict=True))]
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "  OK   = Status Ok", "  CNS  = Chipset not supported", ""])


def query(machine: SampleMachine, seed: str = SEED) -> str:
    """Return the CSV of the probe's query."""
    return "\n".join([QUERY_HEADER, *query_rows(machine, seed)]) + "\n"


QUERY_HEADER = (
    "index, uuid, pci.bus_id, name, memory.total [MiB], memory.used [MiB], pcie.link.gen.max, pcie.link.width.max, mig.mode.current, driver_version"
)


def query_rows(machine: SampleMachine, seed: str = SEED) -> list[str]:
    """Return the rows of that CSV, one a GPU."""
    generation, width = machine.pcie
    return [
        f"{i}, {uuid}, {machine.bus_ids[i]}, {machine.model}, {machine.memory_mib} MiB, {machine.idle_mib} MiB, {generation}, {width}, "
        f"{machine.mig_mode or '[N/A]'}, {machine.driver_version}"
        for i, uuid in enumerate(machine.uuids(seed))
    ]


def old_query(machine: SampleMachine, seed: str = SEED) -> str:
    """Return the CSV of the query that drivers before 450 understand."""
    rows = [
        f"{i}, {uuid}, {machine.bus_ids[i]}, {machine.model}, {machine.memory_mib} MiB, {machine.idle_mib} MiB, {machine.driver_version}"
        for i, uuid in enumerate(machine.uuids(seed))
    ]
    return "\n".join(["index, uuid, pci.bus_id, name, memory.total [MiB], memory.used [MiB], driver_version", *rows]) + "\n"


LOST_SENTENCE = "Unable to determine the device handle for GPU{at}: {bus}: GPU is lost.  Reboot the system to recover this GPU\n"


def losing(machine: SampleMachine, at: int, seed: str = SEED, *, topo_too: bool = False) -> dict[str, Answer]:
    """Return what nvidia-smi says when a GPU has fallen off the bus: a line in its place, exit status 15; ``topo_too``: `topo -m` says nothing else."""
    line = LOST_SENTENCE.format(at=at, bus=machine.bus_ids[at][4:])
    rows = query_rows(machine, seed)
    del rows[at]
    listed = "".join(f"GPU {i}: {machine.model} (UUID: {uuid})\n" for i, uuid in enumerate(machine.uuids(seed)) if i != at)
    answers = {QUERY: Answer(line + "\n".join([QUERY_HEADER, *rows]) + "\n", 15), LIST: Answer(listed + line, 15)}
    return {**answers, TOPO: Answer(line, 15)} if topo_too else answers


def nvlink(machine: SampleMachine, seed: str = SEED) -> str:
    """Return the text of `nvidia-smi nvlink -s`."""
    lines = []
    for i, uuid in enumerate(machine.uuids(seed)):
        lines.append(f"GPU {i}: {machine.model} (UUID: {uuid})")
        lines += [f"\t Link {link}: {machine.nvlink_gb_per_s} GB/s" for link in range(machine.nvlinks)]
        if not machine.nvlinks:
            lines.append("Device does not have or support Nvlink")
    return "\n".join(lines) + "\n"


def xml(machine: SampleMachine, seed: str = SEED) -> str:
    """Return the part of `nvidia-smi -q -x` that is read."""
    generation, width = machine.pcie
    gpus = "".join(
        f"""	<gpu id="{machine.bus_ids[i]}">
		<product_name>{machine.model}</product_name>
		<mig_mode>
			<current_mig>{machine.mig_mode or "N/A"}</current_mig>
			<pending_mig>{machine.mig_mode or "N/A"}</pending_mig>
		</mig_mode>
		<mig_devices>
			None
		</mig_devices>
		<uuid>{uuid}</uuid>
		<minor_number>{machine.minors[i]}</minor_number>
		<pci>
			<pci_bus_id>{machine.bus_ids[i]}</pci_bus_id>
			<pci_gpu_link_info>
				<pcie_gen>
					<max_link_gen>{generation}</max_link_gen>
					<current_link_gen>1</current_link_gen>
				</pcie_gen>
				<link_widths>
					<max_link_width>{width}x</max_link_width>
					<current_link_width>{width}x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
		</pci>
		<fb_memory_usage>
			<total>{machine.memory_mib} MiB</total>
			<used>{machine.idle_mib} MiB</used>
		</fb_memory_usage>
	</gpu>
"""
        for i, uuid in enumerate(machine.uuids(seed))
    )
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>{machine.driver_version}</driver_version>
	<attached_gpus>{machine.size}</attached_gpus>
{gpus}</nvidia_smi_log>
"""


# --- the kernel's side ----------------------------------------------------------------------------------------------

# Bridges above each GPU, by kind: below the root port an upstream and a downstream port of a PCIe switch where the machine has one.
PCIE_TREES: dict[str, tuple[str, ...]] = {
    "nvswitch": tuple(f"pci0000:{bus}/0000:{bus}:01.0" for bus in ("18", "3a", "4b", "5c", "9a", "ba", "ca", "da")),
    "dgx1v": (
        "pci0000:00/0000:00:02.0/0000:04:00.0/0000:05:08.0",
        "pci0000:00/0000:00:02.0/0000:04:00.0/0000:05:0c.0",
        "pci0000:00/0000:00:03.0/0000:08:00.0/0000:09:08.0",
        "pci0000:00/0000:00:03.0/0000:08:00.0/0000:09:0c.0",
        "pci0000:80/0000:80:02.0/0000:83:00.0/0000:84:08.0",
        "pci0000:80/0000:80:02.0/0000:83:00.0/0000:84:0c.0",
        "pci0000:80/0000:80:03.0/0000:87:00.0/0000:88:08.0",
        "pci0000:80/0000:80:03.0/0000:87:00.0/0000:88:0c.0",
    ),
    "bridges": tuple(f"pci0000:{bus}/0000:{bus}:01.1" for bus in ("00", "20", "40", "60", "80", "a0", "c0", "e0")),
    "pcie": (
        "pci0000:10/0000:10:02.0/0000:14:00.0/0000:15:00.0",
        "pci0000:10/0000:10:02.0/0000:14:00.0/0000:15:01.0",
        "pci0000:30/0000:30:02.0/0000:38:00.0/0000:39:00.0",
        "pci0000:30/0000:30:02.0/0000:38:00.0/0000:39:01.0",
        "pci0000:90/0000:90:02.0/0000:96:00.0/0000:97:00.0",
        "pci0000:90/0000:90:02.0/0000:96:00.0/0000:97:01.0",
        "pci0000:b0/0000:b0:02.0/0000:b6:00.0/0000:b7:00.0",
        "pci0000:b0/0000:b0:02.0/0000:b6:00.0/0000:b7:01.0",
    ),
    "mesh": tuple(f"pci0000:{bus}/0000:{bus}:01.1" for bus in ("00", "40", "80", "c0")),
}
_SPEED_OF = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}


def write_sysfs(directory: Path, machine: SampleMachine, *, numa: bool = True) -> Path:
    """Write the kernel's view of the machine below ``directory`` and return the root of its sysfs; ``numa`` False: firmware told no NUMA node."""
    root = directory / "sys"
    generation, width = machine.pcie
    for i in range(machine.size):
        facts = {
            "numa_node": str(machine.numa_nodes[i]) if numa else "-1",
            "local_cpulist": machine.cpus[i],
            "max_link_speed": _SPEED_OF[generation],
            "max_link_width": str(width),
        }
        write_pci_device(root, PCIE_TREES[machine.kind][i], kernel_name(machine.bus_ids[i]), facts)
        write_minor(directory, kernel_name(machine.bus_ids[i]), machine.minors[i])
    return root


def kernel_name(bus_id: str) -> str:
    """Return the bus id as the kernel writes it."""
    return bus_id[4:].lower()


def write_pci_device(root: Path, above: str, name: str, facts: Mapping[str, str]) -> None:
    """Write one PCI device below ``above`` (`pci0000:00/0000:00:01.0/…`) with its files, and the link by which it is found."""
    device = root / "devices" / above / name
    device.mkdir(parents=True)
    for file, text in facts.items():
        (device / file).write_text(text + "\n", encoding="utf-8")
    links = root / "bus" / "pci" / "devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / name).symlink_to(device)


def write_minor(directory: Path, name: str, minor: int) -> None:
    """Write what the driver's procfs says of one GPU."""
    gpu = directory / "proc" / "driver" / "nvidia" / "gpus" / name
    gpu.mkdir(parents=True)
    (gpu / "information").write_text(f"Model: \t\t NVIDIA\nIRQ:   \t\t 100\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n", encoding="utf-8")
