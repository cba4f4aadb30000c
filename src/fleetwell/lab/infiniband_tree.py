"""The part of a virtual node's sysfs that an RDMA interface shows: EFA and mlx5, with the counters of each driver.

EFA's driver says ACTIVE and LinkUp whatever happens (``efa_query_port`` has both as constants), so these files say
nothing about its health, and the lab never changes them.
"""

from pathlib import Path

from fleetwell.lab import sysfs
from fleetwell.lab.machine import Nic
from fleetwell.lab.nic_state import NicState

_EFA_PORT_COUNTERS = [
    "tx_bytes",
    "tx_pkts",
    "rx_bytes",
    "rx_pkts",
    "rx_drops",
    "send_bytes",
    "send_wrs",
    "recv_bytes",
    "recv_wrs",
    "rdma_read_wrs",
    "rdma_read_bytes",
    "rdma_read_wr_err",
    "rdma_read_resp_bytes",
    "rdma_write_wrs",
    "rdma_write_bytes",
    "rdma_write_wr_err",
    "rdma_write_recv_bytes",
]
# Only from the fourth Nitro generation on (device id 0xefa3): elsewhere absent, which is neither zero nor a fault.
_EFA_RETRANSMISSION_COUNTERS = [
    "retrans_bytes",
    "retrans_pkts",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
]
_EFA_WITH_RETRANSMISSIONS = 0xEFA3
_EFA_DEVICE_COUNTERS = [
    "submitted_cmds",
    "completed_cmds",
    "cmds_err",
    "no_completion_cmds",
    "keep_alive_rcvd",
    "alloc_pd_err",
    "create_qp_err",
    "create_cq_err",
    "reg_mr_err",
    "alloc_ucontext_err",
    "create_ah_err",
    "mmap_err",
]
_MLX5_PORT_COUNTERS = [
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
    "VL15_dropped",
]
_MLX5_HW_COUNTERS = [
    "rnr_nak_retry_err",
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "roce_slow_restart",
    "roce_adp_retrans",
    "np_cnp_sent",
    "rp_cnp_handled",
    "duplicate_request",
    "implied_nak_seq_err",
    "req_cqe_error",
    "resp_cqe_error",
]
_LIFESPAN_MS = 10  # how long the kernel caches counters before it asks the device again
_QUIET = {"submitted_cmds": 96, "completed_cmds": 96, "keep_alive_rcvd": 1}


def write(root: Path, nic: Nic, number: int, pci_folder: Path) -> None:
    """Write the interface as ``sys/class/infiniband/NAME`` and its verbs device ``uverbsNUMBER``."""
    folder = pci_folder / "infiniband" / nic.name
    efa = nic.driver == "efa"
    sysfs.put(folder / "fw_ver", "0.0.0.0" if efa else "28.43.2026")
    sysfs.put(folder / "node_type", "4: unspecified" if efa else "1: CA")
    port = folder / "ports/1"
    sysfs.put(port / "state", "4: ACTIVE")
    sysfs.put(port / "phys_state", "5: LinkUp")
    sysfs.put(port / "rate", _rate(nic, nic.rate_gbps))
    sysfs.put(port / "link_layer", "Unspecified" if efa else "InfiniBand")
    sysfs.put(port / "gids/0", f"fe80:0000:0000:0000:0000:00ff:fe00:{number:04x}")
    if efa:
        counters = [*_EFA_PORT_COUNTERS]
        if nic.device_id >= _EFA_WITH_RETRANSMISSIONS:
            counters += _EFA_RETRANSMISSION_COUNTERS
        _counters(port / "hw_counters", counters)
        _counters(folder / "hw_counters", _EFA_DEVICE_COUNTERS)
    else:
        _counters(port / "counters", _MLX5_PORT_COUNTERS)
        _counters(port / "hw_counters", _MLX5_HW_COUNTERS)
    sysfs.link(folder / "device", pci_folder)
    sysfs.link(root / "sys/class/infiniband" / nic.name, folder)
    verbs = f"uverbs{number}"
    sysfs.put(pci_folder / "infiniband_verbs" / verbs / "ibdev", nic.name)
    sysfs.link(root / "sys/class/infiniband_verbs" / verbs, pci_folder / "infiniband_verbs" / verbs)
    node = root / "dev/infiniband" / verbs
    node.parent.mkdir(parents=True, exist_ok=True)
    node.touch()


def show(pci_folder: Path, nic: Nic, state: NicState) -> None:
    """Bring the interface's files in line with what was done to it."""
    folder = pci_folder / "infiniband" / nic.name
    port = folder / "ports/1"
    sysfs.put(port / "rate", _rate(nic, state.rate_gbps or nic.rate_gbps))
    if nic.driver != "efa":  # EFA's driver says the same whatever is true.
        sysfs.put(port / "state", "1: DOWN" if state.down else "4: ACTIVE")
        sysfs.put(port / "phys_state", "2: Polling" if state.down else "5: LinkUp")
    for counters in (folder / "hw_counters", port / "counters", port / "hw_counters"):
        if counters.is_dir():
            for counter in counters.iterdir():
                if counter.name != "lifespan" and not counter.name.startswith("."):
                    sysfs.put(counter, _QUIET.get(counter.name, 0) + state.counters.get(counter.name, 0))


def remove(root: Path, nic: Nic) -> None:
    """Take the interface out of the classes; its PCI folder is the caller's to remove."""
    (root / "sys/class/infiniband" / nic.name).unlink(missing_ok=True)
    for ibdev in sysfs.device_folder(root, nic.pci).glob("infiniband_verbs/*/ibdev"):
        (root / "sys/class/infiniband_verbs" / ibdev.parent.name).unlink(missing_ok=True)
        (root / "dev/infiniband" / ibdev.parent.name).unlink(missing_ok=True)


def _counters(folder: Path, names: list[str]) -> None:
    for name in names:
        sysfs.put(folder / name, _QUIET.get(name, 0))
    if folder.name == "hw_counters":
        sysfs.put(folder / "lifespan", _LIFESPAN_MS)


def _rate(nic: Nic, gbps: int) -> str:
    """Write a rate as the kernel does: EFA's driver gives names of lanes by the rate alone, mlx5 those of the cable."""
    if nic.driver == "efa":
        lanes = next((lanes for least, lanes in ((400, "8X HDR"), (200, "4X HDR")) if gbps >= least), "4X EDR")
    else:
        lanes = {100: "4X EDR", 200: "4X HDR", 800: "4X XDR"}.get(gbps, "4X NDR")
    return f"{gbps} Gb/sec ({lanes})"
