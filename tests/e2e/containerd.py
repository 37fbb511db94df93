"""containerd of one node of a test: its configuration, and what tests ask it.

Everything that it keeps lies in the node's enclosure: its state below /run, the rest in the node's folder. The pods' network is none: a CNI plugin of six
lines gives each an address that nobody can reach, so that no interface, route or firewall rule of the machine is touched, and a pod starts sooner.
"""

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from tests.e2e.enclosure import Enclosure, InsideProgram
from tests.e2e.image import IMAGE, write_image
from tests.e2e.node_needs import FromDistribution

SOCKET = "/run/containerd/containerd.sock"
CDI = "/var/run/cdi"  # where every runtime looks; inside, /var/run is /run

_CNI_PLUGIN = """#!/bin/sh
case $CNI_COMMAND in
ADD) id=${CNI_CONTAINERID%"${CNI_CONTAINERID#????}"}
  address=10.88.$((0x${id%??})).$((0x${id#??}))/32
  echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'$CNI_NETNS'"}],"ips":[{"address":"'$address'","interface":0}]}' ;;
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
esac
"""


class Containerd:
    """One containerd; ``programs`` as `tests.e2e.build.programs` returns them, logs go to ``logs``."""

    def __init__(self, enclosure: Enclosure, programs: Mapping[str, Path], tools: FromDistribution, logs: Path) -> None:
        self._enclosure = enclosure
        self._programs = programs
        self._tools = tools
        self._directory = enclosure.directory / "containerd"
        self._plugins, self._networks = self._directory / "cni-plugins", self._directory / "cni-networks"
        # The shim has to be on its PATH.
        path = {"PATH": f"{programs['containerd'].parent}:/usr/sbin:/usr/bin:/sbin:/bin"}
        command = (programs["containerd"], "--config", self._directory / "config.toml")
        self.program: InsideProgram = enclosure.program("containerd", command, logs / "containerd.log", path)

    def write(self) -> None:
        """Write its configuration and the CNI plugin; once a node."""
        for folder in (self._plugins, self._networks):
            folder.mkdir(parents=True)
        plugin = self._plugins / "nowhere"
        plugin.write_text(_CNI_PLUGIN)
        plugin.chmod(0o755)
        (self._networks / "nowhere.conflist").write_bytes(orjson.dumps({"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "nowhere"}]}))
        (self._directory / "config.toml").write_text(self._configuration())

    def start(self) -> None:
        """Start it, also again; it answers when this returns."""
        self.program.start().wait_ready(self._answers)

    def import_image(self) -> None:
        """Give it the one image, which is pinned so that kubelet never collects it."""
        archive = write_image(self._tools.busybox, self._directory / "image.tar")
        self.ctr("images", "import", "--local", "--snapshotter", self._snapshotter(), archive)
        self.ctr("images", "label", IMAGE, "io.cri-containerd.pinned=pinned")

    def containers(self) -> dict[str, int]:
        """Return the process ids inside of the tasks that run, by container id; sandboxes are among them."""
        rows = (line.split() for line in self.ctr("tasks", "list").splitlines()[1:])
        return {name: int(pid) for name, pid, status in rows if status == "RUNNING"}

    def ctr(self, *arguments: str | Path) -> str:
        """Run `ctr` in the namespace of Kubernetes and return what it printed."""
        return self._enclosure.call(self._programs["ctr"], "--address", SOCKET, "--namespace", "k8s.io", *arguments)

    def _answers(self) -> bool:
        if not (self._enclosure.run / "containerd" / "containerd.sock").exists():
            return False
        with contextlib.suppress(AssertionError):
            return bool(self.ctr("version"))
        return False

    def _configuration(self) -> str:
        runtime = "plugins.'io.containerd.cri.v1.runtime'"
        sections: dict[str, dict[str, Any]] = {
            "": {
                "version": 3,
                "root": str(self._directory / "root"),
                "disabled_plugins": ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"],
            },
            "plugins.'io.containerd.cri.v1.images'": {"snapshotter": self._snapshotter()},
            "plugins.'io.containerd.cri.v1.images'.pinned_images": {"sandbox": IMAGE},
            # Without CAP_SYS_RESOURCE runc may not lower the score, and no sandbox would start ("can't get final child's PID from pipe").
            runtime: {"restrict_oom_score_adj": True, "enable_cdi": True, "cdi_spec_dirs": [CDI], "disable_hugetlb_controller": True},
            f"{runtime}.containerd.runtimes.runc": {"runtime_type": "io.containerd.runc.v2", "snapshotter": self._snapshotter()},
            f"{runtime}.containerd.runtimes.runc.options": {"BinaryName": str(self._tools.runc), "SystemdCgroup": False},
            f"{runtime}.cni": {
                "bin_dirs": [str(self._plugins)],
                "conf_dir": str(self._networks),
                "use_internal_loopback": True,
            },
        }
        return "".join(
            (f"[{section}]\n" if section else "") + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())
            for section, values in sections.items()
        )

    def _snapshotter(self) -> str:
        """Return `overlayfs` where a mount of one works in the node's folder, else `native`, which copies: no overlay lies on another (Docker)."""
        with tempfile.TemporaryDirectory(dir=self._enclosure.directory) as name:
            folder = Path(name)
            for each in ("lower", "upper", "work", "merged"):
                (folder / each).mkdir()
            options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
            # In namespaces of its own, which end with it: nothing to unmount.
            mount = ("mount", "-t", "overlay", "overlay", "-o", options, folder / "merged")
            done = subprocess.run([self._tools.unshare, "--mount", *mount], capture_output=True, check=False)
        return "native" if done.returncode else "overlayfs"


def _toml(value: bool | int | str | list[str]) -> str:
    """Return a value as TOML writes it, which for these is as JSON does."""
    return orjson.dumps(value).decode()
