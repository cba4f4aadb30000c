"""The fault catalogue and the Xid rules, read from this package's data files.

Which code means what is data, so that a new driver's code is a line in a file and not a branch in the program; every
choice that differs from the vendor's own advice stands in ``xid_departures.toml`` with its reason.
"""

from __future__ import annotations

import csv
import enum
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from fleetwell.health.vocabulary import Clears, ConditionType, FaultName, Recovery, Verdict


class FaultClass(enum.StrEnum):
    """Whose fault it is. Faults of applications never touch the node."""

    HARDWARE = "hardware"
    DRIVER = "driver"
    APPLICATION = "application"
    CONFIG = "config"
    MONITORING = "monitoring"


class Architecture(enum.StrEnum):
    """GPU generations that the Xid catalogue tells apart."""

    AMPERE = "ampere"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"
    GRACE_BLACKWELL = "grace_blackwell"


class UnknownFaultError(LookupError):
    """The catalogue has no fault of that name; nothing was changed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no fault named {name[:64]!r} in the catalogue; docs/conditions-and-faults.md lists them")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault: what it means, what it asks for and how it ends. See the head of ``faults.toml``."""

    name: FaultName
    condition: ConditionType
    scope: str
    fault_class: FaultClass
    verdict: Verdict
    recovery: Recovery
    clears: Clears
    means: str
    action: str
    source: str
    seconds: float = 0.0
    """For ``clears = time``: how long after the last event a finding ends."""
    debounce: tuple[int, int] = (1, 1)
    """A snapshot's observation counts once it was there in k of the last n looks."""
    least: Recovery = Recovery.NONE
    """The weakest recovery that can help, whatever the driver's own advice says."""
    unintelligible: bool = False

    @property
    def touches_node(self) -> bool:
        """Whether a finding of this kind may move a condition of the node."""
        return self.fault_class is not FaultClass.APPLICATION


class XidRule(msgspec.Struct, frozen=True, kw_only=True):
    """What fleetwell does about one Xid number."""

    xid: int | None
    mnemonic: str
    bucket: str
    """The vendor's immediate action; empty where the vendor gives none, or the number is not in the catalogue."""
    investigatory: str
    fault: FaultName
    verdict: Verdict
    recovery: Recovery
    expected: bool | None
    """Whether the catalogue says that the asked architecture can log it; None where it does not say."""
    departure: str = ""
    """Why this rule differs from the vendor's bucket; empty where it does not."""


UNKNOWN_XID: Final = FaultName("GpuUnknownXid")

BUCKETS: Final[Mapping[str, tuple[Verdict, Recovery]]] = MappingProxyType(
    {
        "": (Verdict.UNKNOWN, Recovery.SUPPORT),
        "IGNORE": (Verdict.OK, Recovery.NONE),
        "RESTART_APP": (Verdict.CONFIG, Recovery.RESTART_WORKLOAD),
        "RESET_GPU": (Verdict.BAD, Recovery.RESET_GPU),
        "RESTART_VM": (Verdict.BAD, Recovery.REBOOT),
        "RESTART_BM": (Verdict.BAD, Recovery.REBOOT),
        "CONTACT_SUPPORT": (Verdict.BAD, Recovery.SUPPORT),
        "CHECK_MECHANICALS": (Verdict.BAD, Recovery.SUPPORT),
        "CHECK_UVM": (Verdict.UNKNOWN, Recovery.SUPPORT),
        "UPDATE_SWFW": (Verdict.CONFIG, Recovery.NONE),
        "WORKFLOW_XID_45": (Verdict.CONFIG, Recovery.RESTART_WORKLOAD),
        "WORKFLOW_XID_48": (Verdict.BAD, Recovery.RESET_GPU),
        "WORKFLOW_NVLINK_ERR": (Verdict.BAD, Recovery.RESET_GPU),
        "WORKFLOW_NVLINK5_ERR": (Verdict.UNKNOWN, Recovery.SUPPORT),
        "XID_154": (Verdict.UNKNOWN, Recovery.SUPPORT),
    }
)
"""The vendor's immediate actions as verdict and recovery, before departures. Workflows: the answer without more to go
by than the number (154 without its text and the NVLink codes without their registers cannot be judged)."""

_CONDITIONS: Final = {
    "gpu": ConditionType.GPU,
    "memory": ConditionType.GPU_MEMORY,
    "interconnect": ConditionType.INTERCONNECT,
    "network": ConditionType.NETWORK,
    "thermal": ConditionType.THERMAL,
    "monitoring": ConditionType.MONITORING,
}


_DATA: Final = Path(__file__).with_name("data")


def read_data(name: str) -> str:
    """Read one of the package's own data files."""
    return (_DATA / name).read_text(encoding="utf-8")


def _read_fault(name: str, row: Mapping[str, Any]) -> Fault:
    fields = dict(row, name=name, condition=_CONDITIONS[row["condition"]], fault_class=row["class"])
    del fields["class"]
    return msgspec.convert(fields, Fault)


CATALOGUE: Final[Mapping[FaultName, Fault]] = MappingProxyType(
    {FaultName(name): _read_fault(name, row) for name, row in tomllib.loads(read_data("faults.toml")).items()}
)


def fault(name: str) -> Fault:
    """Give the catalogue's entry of a fault; raises UnknownFaultError for a name that it does not have."""
    try:
        return CATALOGUE[FaultName(name)]
    except KeyError:
        raise UnknownFaultError(name) from None


@functools.lru_cache(maxsize=256)
def fault_or_unknown(name: str) -> Fault:
    """Give the catalogue's entry, or a stand-in that blocks new work and asks for a person.

    An agent that was rolled back adopts findings that a newer one wrote; their names must neither stop it nor pass.
    """
    known = CATALOGUE.get(FaultName(name))
    if known is not None:
        return known
    return msgspec.structs.replace(
        CATALOGUE[UNKNOWN_XID], name=FaultName(name), means="A fault that this version's catalogue does not have."
    )


def _departures() -> dict[int, dict[str, Any]]:
    return {row["xid"]: row for row in tomllib.loads(read_data("xid_departures.toml"))["departure"]}


def _read_rule(row: Mapping[str, str], departure: Mapping[str, Any] | None) -> XidRule:
    verdict, recovery = BUCKETS[row["bucket"]]
    name = FaultName(row["fault"])
    if name == UNKNOWN_XID:
        verdict, recovery = BUCKETS[""]
    elif recovery is Recovery.NONE and fault(name).fault_class is FaultClass.APPLICATION:
        verdict = Verdict.CONFIG
    if departure is not None:
        verdict, recovery = Verdict(departure["verdict"]), Recovery(departure["recovery"])
    return XidRule(
        xid=int(row["xid"]),
        mnemonic=row["mnemonic"],
        bucket=row["bucket"],
        investigatory=row["investigatory"],
        fault=name,
        verdict=verdict,
        recovery=recovery,
        expected=None,
        departure=departure["reason"] if departure else "",
    )


_ROWS: Final = {int(row["xid"]): row for row in csv.DictReader(read_data("xid.csv").splitlines())}
_RULES: Final = {xid: _read_rule(row, _departures().get(xid)) for xid, row in _ROWS.items()}

XIDS: Final = tuple(_RULES)
"""Every number that the catalogue has, used or not."""


@functools.lru_cache(maxsize=1024)
def for_xid(xid: int | None, architecture: Architecture | None = None) -> XidRule:
    """Give the rule for an Xid number; None and numbers beyond the catalogue cannot be judged and block new work."""
    rule = _RULES.get(xid) if xid is not None else None
    if rule is None:
        verdict, recovery = BUCKETS[""]
        return XidRule(
            xid=xid,
            mnemonic="",
            bucket="",
            investigatory="",
            fault=UNKNOWN_XID,
            verdict=verdict,
            recovery=recovery,
            expected=None,
        )
    if architecture is None:
        return rule
    said = _ROWS[rule.xid or 0][architecture.value]
    return msgspec.structs.replace(rule, expected={"yes": True, "no": False}.get(said))
