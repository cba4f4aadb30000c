"""One control plane on this machine: real etcd, kube-apiserver, kube-scheduler and kube-controller-manager.

Everything it has is below one folder, so that a later Python process finds it again, and two folders are two clusters.
Each start makes new ports and certificates; the objects in etcd stay until the folder is deleted.
"""

import http.client
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Self, TypeAlias

import msgspec

from fleetwell.lab import controlplane_flags as flags
from fleetwell.lab import processes
from fleetwell.lab.controlplane_build import Binaries, binaries
from fleetwell.lab.controlplane_files import read_authority, write_audit_policy, write_files
from fleetwell.lab.kubeconfig import write_kubeconfig
from fleetwell.lab.ports import free_ports
from fleetwell.lab.processes import LabProcess
from fleetwell.lab.sessions import Ended

Progress: TypeAlias = Callable[[str], None]

ETCD, APISERVER = "etcd", "kube-apiserver"
SCHEDULER, CONTROLLER_MANAGER = "kube-scheduler", "kube-controller-manager"
# In the order of their start; they are stopped the other way round, so that none complains of a missing one.
COMPONENTS = (ETCD, APISERVER, SCHEDULER, CONTROLLER_MANAGER)

# 3.4 s on an idle machine with 2 cores; a machine that compiles meanwhile needs many times that.
START_DEADLINE_S = 120.0
_POLL_S = 0.1
_REQUEST_TIMEOUT_S = 5.0
# Nothing is lost by a SIGKILL (etcd holds all of it), while an API server waits long for its watches to close.
_STOP_GRACE_S = 2.0
_START_TRIES = 3
# Go's runtime collects garbage half as often for some memory, of which a lab has more than of CPU.
_GO_GC = "200"


class ControlPlaneError(RuntimeError):
    """The control plane did not come up, or is not in the state that was asked of it."""


class _State(msgspec.Struct, frozen=True):
    port: int
    etcd_port: int


class ControlPlane:
    """A control plane below ``root``.

    ``tied`` ends it when this Python process is gone, however that comes; otherwise it runs until :meth:`stop`, here
    or in a process that calls :meth:`attach`. ``audit``: the API server notes each request that may change something.
    """

    def __init__(self, root: Path, *, tied: bool = True, programs: Binaries | None = None, audit: bool = False) -> None:
        self.root = root.resolve()
        self._files = flags.Files(self.root)
        self._tied = tied
        self._programs = programs
        self._audit = audit
        self._state: _State | None = None

    @classmethod
    def attach(cls, root: Path) -> Self:
        """Take up a control plane that was started before; ControlPlaneError when there is none in this folder."""
        plane = cls(root, tied=False)
        try:
            plane._state = msgspec.json.decode(plane._state_file.read_bytes(), type=_State)
        except FileNotFoundError as error:
            raise ControlPlaneError(f"no control plane was started in {plane.root}.\nhint: fleetwell lab up") from error
        return plane

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"https://{flags.LOOPBACK}:{self._ports().port}"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator (group system:masters)."""
        return self._files.kubeconfig("admin")

    @property
    def certificate_authority(self) -> Path:
        """PEM certificate that the API server's is checked against."""
        return self._files.certificate("ca")

    def kubeconfig_for(self, path: Path, user: str, *, groups: Sequence[str] = (), token: str | None = None) -> Path:
        """Write a kubeconfig for any user: with this token, else with a client certificate for user and groups."""
        authority = read_authority(self._files)
        credentials = token or authority.issue_client(user, groups)
        return write_kubeconfig(path, self.url, authority.certificate, user, credentials)

    def log(self, component: str) -> Path:
        """Return the log file of a component."""
        return self.root / "logs" / f"{component}.log"

    @property
    def audit_log(self) -> Path:
        """What the API server noted, one ``audit.k8s.io/v1`` Event a line; there is none without ``audit``."""
        return self._files.audit_log

    def running(self) -> dict[str, bool]:
        """Tell of each component whether its process is there."""
        found = {name: self._process(name) for name in COMPONENTS}
        return {name: process is not None and process.is_running() for name, process in found.items()}

    def start(self, progress: Progress, *, deadline_s: float = START_DEADLINE_S) -> None:
        """Start all four and return when the cluster takes pods; on an error nothing is left running."""
        if any(self.running().values()):
            raise ControlPlaneError(
                f"a control plane already runs in {self.root}; it was left as it is.\nhint: fleetwell lab down"
            )
        programs = self._programs or binaries(progress)
        for last in (False,) * (_START_TRIES - 1) + (True,):
            try:
                self._start(programs, progress, time.monotonic() + deadline_s)
            except BaseException as error:
                self.stop()
                if last or not (isinstance(error, ControlPlaneError) and "address already in use" in str(error)):
                    raise
                progress("somebody else took a port meanwhile; trying again with others")
            else:
                return

    def stop(self) -> None:
        """End all four; what etcd holds stays on disk. ControlPlaneError when one does not end even by SIGKILL."""
        stuck = []
        for name in reversed(COMPONENTS):
            process = self._process(name)
            if process is not None and process.stop(_STOP_GRACE_S) is Ended.STUCK:
                stuck.append(f"{name} (pid {process.pid})")
        self._state_file.unlink(missing_ok=True)
        if stuck:
            raise ControlPlaneError(
                f"still there after SIGKILL: {', '.join(stuck)}; the kernel holds it, the others have ended"
            )

    def pause_apiserver(self) -> None:
        """Stop the API server with SIGSTOP: connections stay open and nothing answers, as behind a cut network."""
        self._expect(APISERVER).signal(SIGSTOP)

    def resume_apiserver(self) -> None:
        """Let a paused API server go on."""
        self._expect(APISERVER).signal(SIGCONT)

    def restart_apiserver(self, *, down_s: float = 0.0, deadline_s: float = START_DEADLINE_S) -> None:
        """End the API server and start it again on the same port, ``down_s`` seconds later at the earliest."""
        self.stop_apiserver()
        time.sleep(down_s)
        self.start_apiserver(deadline_s=deadline_s)

    def stop_apiserver(self) -> None:
        """End the API server: its port refuses connections until :meth:`start_apiserver`."""
        self._expect(APISERVER).stop(_STOP_GRACE_S)

    def start_apiserver(self, *, deadline_s: float = START_DEADLINE_S) -> None:
        """Start the API server that :meth:`stop_apiserver` ended, and wait until it is ready."""
        self._launch(self._programs or binaries(lambda _: None), APISERVER)
        self._wait_for("/readyz", APISERVER, time.monotonic() + deadline_s)

    def _start(self, programs: Binaries, progress: Progress, deadline: float) -> None:
        began = time.monotonic()
        port, etcd_port = free_ports(2)
        self._state = _State(port, etcd_port)
        write_files(self._files, self.url)
        if self._audit:
            write_audit_policy(self._files)
        self._state_file.write_bytes(msgspec.json.encode(self._state))
        for name in (ETCD, APISERVER):
            progress(f"starting {name}")
            self._launch(programs, name)
        self._wait_for("/readyz", APISERVER, deadline)
        for name in (SCHEDULER, CONTROLLER_MANAGER):
            progress(f"starting {name}")
            self._launch(programs, name)
        # Without its service account a pod is refused: with it the controller manager is seen to work.
        self._wait_for("/api/v1/namespaces/default/serviceaccounts/default", CONTROLLER_MANAGER, deadline)
        progress(f"the control plane is ready at {self.url} ({time.monotonic() - began:.1f} s)")

    def _launch(self, programs: Binaries, name: str) -> None:
        ports = self._ports()
        argv = {
            ETCD: (*programs.etcd, *flags.etcd(self._files, ports.etcd_port)),
            APISERVER: (*programs.kube_apiserver, *flags.apiserver(self._files, ports.port, ports.etcd_port)),
            SCHEDULER: (*programs.kube_scheduler, *flags.scheduler(self._files)),
            CONTROLLER_MANAGER: (*programs.kube_controller_manager, *flags.controller_manager(self._files)),
        }[name]
        processes.start(
            name,
            argv,
            log=self.log(name),
            # Not ours: etcd takes every ETCD_* variable for a flag, and Go programs read proxies and GO* settings.
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.root), "GOGC": _GO_GC},
            cwd=self.root,
            record=self._record(name),
            tied=self._tied,
        )

    def _wait_for(self, path: str, waiting_for: str, deadline: float) -> None:
        answer = "no answer yet"
        while time.monotonic() < deadline:
            for name in COMPONENTS:
                process = self._process(name)
                if process is not None and not process.is_running():
                    raise ControlPlaneError(_ended(process))
            answer = self._get(path)
            if answer == "200":
                return
            time.sleep(_POLL_S)
        log = self.log(waiting_for)
        raise ControlPlaneError(
            f"{waiting_for} was not ready in time: {self.url}{path} says {answer}. "
            f"Its last log lines:\n{processes.tail(log, 15)}\nhint: all of it is in {log}"
        )

    def _get(self, path: str) -> str:
        context = ssl.create_default_context(cafile=str(self.certificate_authority))
        context.load_cert_chain(self._files.certificate("admin"), self._files.key("admin"))
        connection = http.client.HTTPSConnection(
            flags.LOOPBACK, self._ports().port, timeout=_REQUEST_TIMEOUT_S, context=context
        )
        try:
            connection.request("GET", path)
            return str(connection.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__
        finally:
            connection.close()

    @property
    def _state_file(self) -> Path:
        return self.root / "controlplane.json"

    def _ports(self) -> _State:
        if self._state is None:
            raise ControlPlaneError(f"the control plane in {self.root} was not started, so it has no address")
        return self._state

    def _record(self, name: str) -> Path:
        return self.root / "run" / f"{name}.json"

    def _process(self, name: str) -> LabProcess | None:
        return processes.attach(self._record(name))

    def _expect(self, name: str) -> LabProcess:
        process = self._process(name)
        if process is None or not process.is_running():
            raise ControlPlaneError(f"{name} of the control plane in {self.root} does not run; see {self.log(name)}")
        return process


def _ended(process: LabProcess) -> str:
    code = process.exit_code()
    how = "" if code is None else f" with exit code {code}"
    return (
        f"{process.name} ended{how} while the control plane was starting. Its last log lines:\n"
        f"{process.log_tail()}\nhint: all of it is in {process.log}"
    )
