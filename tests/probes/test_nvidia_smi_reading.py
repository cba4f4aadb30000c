"""What nvidia-smi prints, in all forms, and what it means."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetwell.health.vocabulary import Recovery, Verdict
from fleetwell.probes.nvidia_smi_reading import Asked, read
from probes import smi_outputs as smi
from probes.verdicts import faults, recovery, snapshot, worst

FORMS: dict[str, Callable[..., str]] = {"long": smi.long_form, "xml": smi.xml}


@pytest.mark.parametrize("form", [*FORMS, "table"])
def test_a_healthy_machine_is_well_in_every_form(form: str) -> None:
    text = smi.table(smi.row(0), smi.row(1)) if form == "table" else FORMS[form]()
    report = read(text, Asked(code=0, expected=2))
    assert faults(report) == set()
    assert len(snapshot(report).covered) == 3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("changed", "fault", "asks"),
    [
        ({"action": "Reset"}, "GpuRecoveryActionReset", Recovery.RESET_GPU),
        ({"action": "Reboot"}, "GpuRecoveryActionReboot", Recovery.REBOOT),
        ({"action": "Drain P2P"}, "GpuRecoveryActionDrainP2P", Recovery.RESET_GPU),
        ({"action": "Drain and Reset"}, "GpuRecoveryActionDrainAndReset", Recovery.RESET_GPU),
        ({"reset_required": "Yes"}, "GpuResetRequired", Recovery.RESET_GPU),
        ({"uncorrectable": "2"}, "GpuEccUncorrectable", Recovery.RESET_GPU),
        ({"sram": "Yes"}, "GpuSramThresholdExceeded", Recovery.REPLACE),
        ({"pending": "Yes"}, "GpuRowRemapPending", Recovery.RESET_GPU),
        ({"failed": "Yes"}, "GpuRowRemapFailed", Recovery.REPLACE),
        ({"rows": "512"}, "GpuRowRemapFailed", Recovery.REPLACE),
        ({"retired": "64", "blacklist": "No"}, "GpuRetiredPagesExceeded", Recovery.REPLACE),
        ({"blacklist": "Yes"}, "GpuPageRetirementPending", Recovery.RESET_GPU),
        ({"slowdown": "Active", "thermal": "Active"}, "GpuThermalSlowdown", Recovery.SUPPORT),
        ({"slowdown": "Active", "brake": "Active"}, "GpuPowerBrake", Recovery.SUPPORT),
        ({"slowdown": "Active"}, "GpuHardwareSlowdown", Recovery.SUPPORT),
        ({"margin": "0 C"}, "GpuOverheating", Recovery.SUPPORT),
        ({"width": "8x"}, "PcieDegraded", Recovery.REBOOT),
        ({"gen": "3", "util": "97 %"}, "PcieDegraded", Recovery.REBOOT),
        ({"fabric": "In Progress", "fabric_status": "N/A"}, "FabricIncomplete", Recovery.REBOOT),
        ({"fabric_status": "Insufficient Resources"}, "FabricDegraded", Recovery.REBOOT),
        ({"bandwidth": "Degraded"}, "FabricDegraded", Recovery.REBOOT),
        ({"power": "GPU is lost"}, "GpuLost", Recovery.REBOOT),
        ({"power": "GPU requires reset"}, "GpuResetRequired", Recovery.RESET_GPU),
    ],
)
def test_each_bad_field_is_found_on_its_gpu_alone(
    form: str, changed: dict[str, str], fault: str, asks: Recovery
) -> None:
    report = read(FORMS[form](changed={1: changed}))
    assert faults(report) == {(fault, smi.GPU1)}
    assert worst(report) is Verdict.BAD
    assert recovery(report) is asks


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "changed",
    [
        {"util": "100 %", "power": "101.00 W"},
        {"gen": "1", "pstate": "P8"},
        {"gen": "1"},
        {"fabric": "N/A", "fabric_status": "N/A", "bandwidth": "N/A"},
        {"action": "N/A"},
    ],
    ids=["utilisation latch", "idle link", "idle link at full power", "no fabric", "old driver"],
)
def test_what_is_no_fault_is_none(form: str, changed: dict[str, str]) -> None:
    assert faults(read(FORMS[form](changed={0: changed, 1: changed}))) == set()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "changed",
    [
        {"pending": "Maybe"},
        {"uncorrectable": "many"},
        {"action": "Pray"},
        {"margin": "warm"},
        {"fabric": "Sideways"},
        {"bandwidth": "Somewhat"},
    ],
)
def test_an_answer_that_is_not_known_leaves_it_open(form: str, changed: dict[str, str]) -> None:
    assert worst(read(FORMS[form](changed={0: changed}))) is Verdict.UNKNOWN


def test_rows_under_mig_are_blind_and_not_healthy() -> None:
    hidden = {"mig": "Enabled", "rows": "N/A", "pending": "N/A", "failed": "N/A"}
    report = read(smi.long_form(changed={0: hidden, 1: hidden}))
    assert faults(report) == set()
    assert any("under MIG" in said for said in snapshot(report).blind)


def test_the_table_of_a_divided_gpu_says_no_more_than_that_it_answers() -> None:
    report = read(smi.table(smi.row(mig="Enabled", ecc="On", util="N/A")))
    assert faults(report) == set()
    assert any("memory repair is not told under MIG" in said for said in snapshot(report).blind)


def test_half_the_lanes_are_right_where_the_model_is_sold_so() -> None:
    half = {"name": "Tesla T4", "width": "8x"}
    assert faults(read(smi.xml(1, {0: half}))) == set()
    assert ("PcieDegraded", smi.GPU0) in faults(read(smi.xml(1, {0: {"width": "8x"}})))


def test_a_lone_power_error_asks_for_nothing() -> None:
    row = smi.row(name="Tesla V100-SXM2-16GB", power="ERR!", cap="250W")
    for text in (smi.table(row), smi.long_form(1, {0: {"power": "Unknown Error"}})):
        report = read(text)
        assert {fault for fault, _ in faults(report)} == {"GpuReadingFailed"}
        assert worst(report) is Verdict.CONFIG
        assert recovery(report) is Recovery.NONE


def test_errors_all_over_a_row_are_a_gpu_in_trouble() -> None:
    report = read(smi.table(smi.row(0), smi.row(1, fan="ERR!", temp="ERR!", power="ERR!", ecc="ERR!", util="ERR!")))
    assert faults(report) == {("GpuHandleError", "gpu/pci-0000:64:00")}
    assert worst(report) is Verdict.BAD


def test_a_table_with_an_error_and_the_long_form_together_ask_for_the_reset() -> None:
    text = smi.table(smi.row(fan="ERR!", temp="68C", power="99W", util="93%")) + smi.long_form(
        1, {0: {"action": "Reset"}}
    )
    report = read(text)
    assert ("GpuRecoveryActionReset", smi.GPU0) in faults(report)
    assert recovery(report).rank >= Recovery.RESET_GPU.rank


def test_a_hostile_process_name_changes_nothing() -> None:
    name = "| ERR!  ERR! ERR! ERR! / ERR! |"
    assert faults(read(smi.table(smi.row(0), processes=f"|    0   N/A  N/A   1234   C   {name} 10MiB |"))) == set()
    inside = "<process_info><process_name>&lt;gpu_recovery_action&gt;Reset</process_name></process_info>"
    assert faults(read(smi.xml(processes=inside))) == set()
    assert worst(read(smi.long_form() + "        GPU Recovery Action : Reset\n")) is not Verdict.BAD


def test_declared_entities_are_refused() -> None:
    bomb = smi.xml().replace(
        'SYSTEM "nvsmi_device_v12.dtd"', '[<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]'
    )
    report = read(bomb)
    assert worst(report) is Verdict.UNKNOWN
    assert "entity" in snapshot(report).observations[0].evidence


def test_a_deep_or_huge_document_is_not_read() -> None:
    assert worst(read("<nvidia_smi_log>" + "<a>" * 100_000)) is Verdict.UNKNOWN
    assert worst(read("x" * (5 << 20))) is Verdict.UNKNOWN
    assert worst(read("a, b\n" * 100_000)) is Verdict.UNKNOWN


_HEAD = "index, uuid, gpu_recovery_action, ecc.errors.uncorrected.volatile.total, power.draw [W]\n"


def test_a_query_is_read_with_any_columns() -> None:
    assert faults(
        read(_HEAD + f"0, {smi.UUIDS[0]}, None, 0, 99.00 W\n1, {smi.UUIDS[1]}, Reset, 3, [Unknown Error]\n")
    ) == {
        ("GpuRecoveryActionReset", smi.GPU1),
        ("GpuEccUncorrectable", smi.GPU1),
        ("GpuReadingFailed", smi.GPU1),
    }
    assert faults(read("index, gpu_recovery_action\n0, None\n1, Reset\n")) == {
        ("GpuRecoveryActionReset", "gpu/index-1")
    }
    assert faults(read("gpu_recovery_action\nNone\nNone\n")) == set()
    mask = "index, clocks_throttle_reasons.active\n0, 0x0000000000000001\n1, 0x0000000000000048\n"
    assert faults(read(mask)) == {("GpuThermalSlowdown", "gpu/index-1")}


def test_a_query_without_a_header_is_read_as_far_as_it_can_mean_one_thing() -> None:
    assert faults(read("0, None\n1, Reset\n")) == {("GpuRecoveryActionReset", "gpu/index-1")}
    assert worst(read("0, 0, 3\n1, 0, 4\n")) is Verdict.UNKNOWN
    columns = ["index", "remapped_rows.pending"]
    assert faults(read("0, No\n1, Yes\n", Asked(columns=columns))) == {("GpuRowRemapPending", "gpu/index-1")}


def test_a_query_that_lost_a_gpu_names_it() -> None:
    text = "index, uuid, temperature.gpu\n0, [GPU is lost], [GPU is lost]\n"
    assert faults(read(text)) == {("GpuLost", "gpu/index-0")}


def test_names_alone_say_nothing_of_health() -> None:
    listed = f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {smi.UUIDS[0]})\n"
    assert worst(read(listed)) is Verdict.UNKNOWN
    assert worst(read(listed, Asked(expected=1))) is Verdict.OK
    assert faults(read(listed, Asked(expected=2))) == {("GpuMissing", "host")}


def test_fewer_gpus_than_there_must_be_are_missing_by_name_where_it_is_known() -> None:
    known = {smi.UUIDS[0]: "0000:53:00.0", smi.UUIDS[1]: "0000:64:00.0"}
    assert faults(read(smi.xml(1), Asked(expected=2, known=known))) == {("GpuMissing", smi.GPU1)}


_ADVICE = "Make sure that the latest NVIDIA driver is installed and running."


@pytest.mark.parametrize(
    ("text", "code", "fault", "component", "verdict", "asks"),
    [
        ("No devices were found", 6, "GpuMissing", "host", Verdict.BAD, Recovery.REBOOT),
        ("No devices were found", 0, "GpuMissing", "host", Verdict.BAD, Recovery.REBOOT),
        (
            f"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. {_ADVICE}",
            9,
            "DriverNotLoaded",
            "host",
            Verdict.BAD,
            Recovery.REBOOT,
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54",
            18,
            "DriverLibraryMismatch",
            "host",
            Verdict.CONFIG,
            Recovery.NONE,
        ),
        (
            "Unable to determine the device handle for GPU 0000:C1:00.0: GPU is lost.  Reboot the system to recover",
            15,
            "GpuLost",
            "gpu/pci-0000:c1:00",
            Verdict.BAD,
            Recovery.REBOOT,
        ),
        (
            "Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error",
            255,
            "GpuHandleError",
            "gpu/pci-0000:c1:00",
            Verdict.BAD,
            Recovery.REBOOT,
        ),
        (
            "WARNING: infoROM is corrupted at gpu 0000:C1:00.0",
            14,
            "GpuInforomCorrupt",
            "gpu/pci-0000:c1:00",
            Verdict.BAD,
            Recovery.REPLACE,
        ),
        (
            "A device's external power cables are not properly attached",
            8,
            "GpuPowerCable",
            "host",
            Verdict.BAD,
            Recovery.SUPPORT,
        ),
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
            12,
            "DriverOperandMissing",
            "host",
            Verdict.CONFIG,
            Recovery.NONE,
        ),
        ("Failed to initialize NVML: Timeout", 255, "ProbeNonsense", "host", Verdict.UNKNOWN, Recovery.NONE),
        ("Segmentation fault (core dumped)", 139, "ProbeNonsense", "host", Verdict.UNKNOWN, Recovery.NONE),
    ],
)
def test_each_failure_text_has_its_meaning(
    text: str, code: int, fault: str, component: str, verdict: Verdict, asks: Recovery
) -> None:
    for given_code in (code, None):
        report = read(text + "\n", Asked(code=given_code))
        assert (fault, component) in faults(report)
        assert worst(report) is verdict
        assert recovery(report) is asks


def test_a_gpu_without_a_handle_leaves_the_others_judged() -> None:
    lost = "Unable to determine the device handle for GPU0: 0000:64:00.0: Unknown Error\n"
    known = {smi.UUIDS[1]: "0000:64:00.0"}
    report = read(smi.long_form(1, attached=2) + "\n" + lost, Asked(code=255, expected=2, known=known))
    assert faults(report) == {("GpuHandleError", smi.GPU1)}
    assert smi.GPU0 in snapshot(report).covered


def test_an_unknown_error_of_nvml_is_the_containers_unless_it_was_on_the_host() -> None:
    text = "Failed to initialize NVML: Unknown Error\n"
    inside = read(text, Asked(code=255, in_container=True))
    assert (worst(inside), recovery(inside)) == (Verdict.CONFIG, Recovery.RESTART_WORKLOAD)
    assert worst(read(text)) is Verdict.CONFIG
    assert worst(read(text, Asked(in_container=False))) is Verdict.UNKNOWN


@pytest.mark.parametrize("code", [1, 2, 3, 4, 6, 9, 10, 12, 13, 14, 15, 127, 139, 255])
def test_a_bad_exit_code_with_good_content_is_no_pass(code: int) -> None:
    assert worst(read(smi.xml(), Asked(code=code))) is not Verdict.OK


def test_a_machine_without_gpus_is_no_fault() -> None:
    report = read("No devices were found\n", Asked(code=6, required=False))
    assert faults(report) == set()
    assert '"absent": "No devices' in report.encode()


@pytest.mark.parametrize("form", [*FORMS, "table"])
def test_a_document_that_is_cut_off_anywhere_is_no_pass(form: str) -> None:
    text = smi.table(smi.row(0), smi.row(1)) if form == "table" else FORMS[form]()
    whole = text.rstrip("\n")
    step = 1 if form != "long" else 3
    for end in [*range(0, len(whole), step), len(whole) - 1]:
        assert worst(read(text[:end])) is not Verdict.OK, text[:end][-60:]


def test_a_query_that_is_cut_off_anywhere_is_no_pass_where_the_count_is_known() -> None:
    rows = "".join(f"{number}, {smi.UUIDS[number]}, None, 0, 99.00 W\n" for number in range(3))
    whole = (_HEAD + rows).rstrip("\n")
    for end in range(len(whole)):
        assert worst(read(whole[:end], Asked(expected=3))) is not Verdict.OK, whole[:end][-60:]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_garbage_is_no_pass(text: str) -> None:
    assert worst(read(text)) is not Verdict.OK


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_spoilt_document_never_breaks_the_reader(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([smi.long_form(1), smi.xml(1), smi.table(smi.row())]))
    at = data.draw(st.integers(0, len(text) - 1))
    piece = data.draw(st.text(alphabet="|+-=<>&:ERR!x0 \n", max_size=12))
    snapshot(read(text[:at] + piece + text[at + len(piece) :]))
