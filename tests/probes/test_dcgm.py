"""What DCGM prints, of 3.x and 4.x, as JSON and as tables, and what it means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetwell.health.catalogue import fault
from fleetwell.health.vocabulary import Recovery, Verdict
from fleetwell.probes import dcgm, dcgm_errors
from fleetwell.probes.dcgm_errors import Error
from fleetwell.probes.dcgm_reading import Asked, read
from fleetwell.probes.tool import NoAnswerError
from probes import dcgm_outputs as out
from probes.test_nvidia_smi import install
from probes.verdicts import faults, recovery, snapshot, worst

HEALTHY_DIAG = out.diag_table(
    [*out.METADATA, ("Deployment", ""), ("Denylist", "Pass"), ("Hardware", ""), ("GPU Memory", "Pass - All")]
)
PASSES = {
    "health JSON": out.health(),
    "health table": out.health_table(),
    "diag 4": out.diag4(("memory", [out.result4(0), out.result4(1)])),
    "diag 3": out.diag3(("Memory", [{"gpu_id": "0", "status": "Pass"}])),
    "diag table": HEALTHY_DIAG,
}


@pytest.mark.parametrize("form", PASSES)
def test_a_pass_is_a_pass_in_every_form(form: str) -> None:
    report = read(PASSES[form], Asked(code=0))
    assert faults(report) == set()
    assert "host" in snapshot(report).covered


@pytest.mark.parametrize("form", PASSES)
def test_a_pass_that_is_cut_off_anywhere_is_none(form: str) -> None:
    whole = PASSES[form].rstrip("\n")
    for end in range(len(whole)):
        assert worst(read(whole[:end])) is not Verdict.OK, whole[:end][-60:]


@pytest.mark.parametrize("form", PASSES)
def test_a_bad_exit_code_is_never_a_pass(form: str) -> None:
    assert worst(read(PASSES[form], Asked(code=226))) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("number", "name", "asks"),
    [
        (20, "GpuMissing", Recovery.REBOOT),
        (80, "GpuRowRemapFailed", Recovery.REPLACE),
        (85, "GpuRowRemapPending", Recovery.RESET_GPU),
        (118, "GpuSramThresholdExceeded", Recovery.REPLACE),
        (123, "FabricIncomplete", Recovery.REBOOT),
        (125, "GpuRecoveryActionReset", Recovery.RESET_GPU),
    ],
)
def test_a_numbered_error_is_its_fault_on_its_gpu(number: int, name: str, asks: Recovery) -> None:
    text = out.diag4(("memory", [out.result4(0), out.result4(3, "Fail", out.warning("said", number, 2))]))
    report = read(text, Asked(code=226, uuids={"3": "GPU-three"}))
    assert faults(report) == {(name, "gpu/GPU-three")}
    assert (worst(report), recovery(report)) == (Verdict.BAD, asks)


def test_every_number_in_the_table_means_a_fault_of_the_catalogue() -> None:
    for number in dcgm_errors.numbers():
        one = dcgm_errors.meaning(Error("", number))
        assert one is not None
        assert not one.fault or fault(one.fault).name == one.fault


def test_what_the_table_calls_bad_the_catalogue_calls_bad() -> None:
    meanings = [dcgm_errors.meaning(Error("", number)) for number in dcgm_errors.numbers()]
    for one in meanings:
        if one is not None and one.fault and not one.verdict:
            assert one.bad is (fault(one.fault).verdict is Verdict.BAD), one


def test_a_number_that_is_not_known_is_judged_by_words_that_name_something_bad_and_by_no_others() -> None:
    bad = dcgm_errors.meaning(Error("GPU 0 has fallen off the bus.", 777))
    mild = dcgm_errors.meaning(Error("Persistence mode for GPU 0 is disabled.", 777))
    assert bad is not None
    assert bad.fault == "GpuFallenOffBus"
    assert mild == dcgm_errors.OPEN


def test_a_message_that_the_table_breaks_within_a_word_is_read_whole() -> None:
    width = 45  # DCGM #49
    said = "GPU 0 had uncorrectable memory errors and row remapping failed. Run a field diagnostic on the GPU."
    pieces = [said[start : start + width] for start in range(0, len(said), width)]
    rows = [("GPU Memory", "Fail - GPU: 0"), ("Warning", pieces[0]), *(("", piece) for piece in pieces[1:])]
    report = read(out.diag_table([*out.METADATA, ("Hardware", ""), *rows]))
    assert faults(report) == {("GpuRowRemapFailed", "gpu/index-0")}


def test_a_number_that_is_not_known_leaves_it_open_and_asks_for_a_person() -> None:
    report = read(out.diag4(("memory", [out.result4(0, "Fail", out.warning("new thing", 777, 6))])))
    assert (worst(report), recovery(report)) == (Verdict.UNKNOWN, Recovery.SUPPORT)


@pytest.mark.parametrize("warnings", ["said", ["said"], [{"warning": "said"}], [], None])
def test_a_failure_of_3x_is_one_however_its_warnings_are_written(warnings: object) -> None:
    text = out.diag3(("PCIe", [{"gpu_ids": "0,1", "status": "Fail", "warnings": warnings}]))
    report = read(text)
    assert {component for _, component in faults(report)} == {"gpu/index-0", "gpu/index-1"}
    assert worst(report) is Verdict.BAD


def test_a_warning_without_a_reason_leaves_it_open() -> None:
    assert worst(read(out.diag4(("memory", [out.result4(0, "Warn")])))) is Verdict.UNKNOWN


def test_a_failure_that_only_names_what_is_harmless_still_counts() -> None:
    report = read(out.diag4(("memory", [out.result4(0, "Fail", out.warning("single bit", 102))])))
    assert worst(report) is Verdict.BAD


def test_a_summary_alone_can_fail_a_test() -> None:
    text = json.dumps(
        {
            "DCGM Diagnostic": {
                "test_categories": [
                    {"tests": [{"name": "pcie", "results": [out.result4(0)], "test_summary": {"status": "Fail"}}]}
                ]
            }
        }
    )
    assert faults(read(text)) == {("GpuProofFailed", "host")}


def test_settings_are_no_fault_of_the_hardware() -> None:
    by_number = out.diag4(("software", [out.result4(0, "Fail", out.warning("Persistence Mode", 29, 5))]))
    by_name = out.diag_table([("Deployment", ""), ("Persistence Mode", "Fail"), ("NVML Library", "Pass")])
    for text in (by_number, by_name):
        assert worst(read(text, Asked(code=226))) is Verdict.CONFIG


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"Some Diagnostic": {}}',
        '{"DCGM Diagnostic": {"test_categories": []}}',
        '{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": []}]}}',
        '{"DCGM GPU Diagnostic": {"test_categories": [{"tests": [{"name": "memory", "results": []}]}]}}',
        '{"DCGM Diagnostic": []}',
        '{"body": {}}',
        '{"body": {"Overall Health": {"value": "Splendid"}}}',
        out.diag4(("memory", [out.result4(0)]), runtime_error="the engine went away"),
        out.diag4(("memory", [out.result4(0, "Perhaps")])),
        out.diag4(("memory", [out.result4(0, "Skip")])),
        out.diag4(("memory", [out.result4(0, "Not Run")])),
        "Error: unable to establish a connection to the specified host: localhost\n",
        "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n",
        "Error: Health watches not enabled. Please enable watches.\n",
        "Error: Unable to check health watches. Return: Timeout\n",
        "{" * 100_000,
        '{"body":' + "[" * 100_000,
    ],
)
def test_what_is_not_understood_is_never_a_pass(text: str) -> None:
    assert worst(read(text)) is Verdict.UNKNOWN
    assert "host" not in snapshot(read(text)).covered or faults(read(text))


def test_a_divided_gpu_makes_blind() -> None:
    for text in (
        "Error: diagnostics are not supported while MIG is enabled\n",
        out.diag4(runtime_error="MIG is enabled"),
    ):
        report = read(text, Asked(code=1))
        assert faults(report) == set()
        assert "MIG" in snapshot(report).blind[0]
        assert snapshot(report).covered == ()


def test_a_table_with_a_failed_test_is_no_pass_even_on_a_divided_gpu() -> None:
    text = out.diag_table(
        [
            *(*out.METADATA, ("Deployment", ""), ("Denylist", "Pass"), ("Integration", ""), ("PCIe", "Fail - All")),
            *(("Hardware", ""), ("GPU Memory", "Pass - All"), ("Stress", ""), ("Targeted Stress", "Skip - All")),
        ]
    )
    report = read(text)
    assert faults(report) == {("GpuProofFailed", "host")}
    assert any("Targeted Stress" in said for said in snapshot(report).blind)


def test_the_tables_rows_are_given_to_their_gpus() -> None:
    three = out.diag_table(
        [
            ("Integration", ""),
            ("PCIe", "Fail - GPU: 0"),
            ("", "Pass - GPUs: 1, 2"),
            ("Warning", "GPU 0 said no"),
            ("", "twice"),
        ]
    )
    assert faults(read(three)) == {("GpuProofFailed", "gpu/index-0")}
    four = out.diag_table(
        [
            ("Hardware", ""),
            ("memory", "Fail"),
            ("", "GPU0: Pass"),
            ("", "GPU1: Fail"),
            ("Warning: GPU1", "pending row remap"),
        ]
    )
    assert faults(read(four)) == {("GpuRowRemapPending", "gpu/index-1")}


_REPLAYS = ["Detected more than 8 PCIe", "replays per minute for GPU 0 : 13"]


@pytest.mark.parametrize(
    "text",
    [
        out.health("Warning", {"0": {"PCIe system": ("Warning", _REPLAYS)}}),
        out.health_table(
            "Warning",
            [("GPU", ""), ("-> 0", "Warning"), ("   -> Errors", ""), ("      -> PCIe system", "Warning")]
            + [("", piece) for piece in _REPLAYS],
        ),
    ],
)
def test_a_health_incident_is_its_fault_though_its_message_is_broken(text: str) -> None:
    assert faults(read(text)) == {("PcieReplays", "gpu/index-0")}


def test_bad_health_without_a_reason_counts() -> None:
    assert worst(read(out.health("Failure"))) is Verdict.BAD
    assert worst(read(out.health("Warning"))) is Verdict.UNKNOWN


def test_xids_of_the_health_watch_are_history() -> None:
    report = read(out.health("Failure", {"1": {"Memory system": ("Failure", ["Detected XID 43 for GPU 1"])}}))
    assert faults(report) == {("GpuNoted", "gpu/index-1")}
    assert worst(report) is Verdict.OK
    mixed = out.health("Failure", {"1": {"Memory system": ("Failure", ["Detected XID 64", "Row remapping failed"])}})
    assert ("GpuRowRemapFailed", "gpu/index-1") in faults(read(mixed))


def test_a_level_that_left_its_tests_out_shows_nothing() -> None:
    text = out.diag4(("memory", [out.result4(0)]))
    assert worst(read(text, Asked(level=2))) is Verdict.OK
    assert worst(read(text, Asked(level=3))) is Verdict.UNKNOWN
    assert worst(read(text, Asked(level=5))) is Verdict.UNKNOWN


LEVEL_4 = ("software", "memory", "pcie", "diagnostic", "targeted_stress", "targeted_power", "nvbandwidth", "eud")
LEVEL_4_OLD = ("Denylist", "GPU Memory", "PCIe", "Diagnostic", "Targeted Stress", "Memory Bandwidth", "EUD Test")


def level4(skipped: str = "", gpu: int = 0, names: tuple[str, ...] = (*LEVEL_4, "memtest", "pulse")) -> str:
    """The longest diagnostic on two GPUs, of which one left a test out."""
    return out.diag4(
        *(
            (name, [out.result4(one, "Skip" if (name, one) == (skipped, gpu) else "Pass") for one in (0, 1)])
            for name in names
        )
    )


@pytest.mark.parametrize("level", [None, 4])
def test_the_longest_level_shows_nothing_of_a_gpu_whose_memory_it_left_out(level: int | None) -> None:
    assert worst(read(level4(), Asked(level=level))) is Verdict.OK
    for test in ("memory", "diagnostic", "memtest"):
        assert worst(read(level4(test, 1), Asked(level=level))) is Verdict.UNKNOWN, test


@pytest.mark.parametrize("test", ["pulse", "eud", "nvbandwidth"])
def test_what_a_board_or_a_package_does_not_have_is_told_and_holds_nothing(test: str) -> None:
    report = read(level4(test), Asked(level=4))
    assert worst(report) is Verdict.OK
    assert any(test in said for said in snapshot(report).blind)


def test_the_older_names_of_the_longest_level_are_read() -> None:
    assert worst(read(level4(names=(*LEVEL_4_OLD, "Memtest", "Pulse Test")), Asked(level=4))) is Verdict.OK
    assert worst(read(level4(names=(*LEVEL_4_OLD, "Pulse Test")), Asked(level=4))) is Verdict.UNKNOWN
    assert worst(read(level4("Memtest", names=(*LEVEL_4_OLD, "Memtest", "Pulse Test")))) is Verdict.UNKNOWN


def test_tests_that_were_chosen_by_name_pass_for_what_they_are() -> None:
    report = read(level4(names=("memtest",)))
    assert worst(report) is Verdict.OK
    assert any("no whole level 4" in said for said in snapshot(report).blind)


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=200)
    | st.recursive(st.none() | st.text(max_size=8), lambda v: st.dictionaries(st.text(max_size=8), v)).map(json.dumps)
)
def test_garbage_is_no_pass(text: str) -> None:
    assert worst(read(text)) is not Verdict.OK


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_spoilt_output_never_breaks_the_reader(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(sorted(PASSES.values())))
    at = data.draw(st.integers(0, len(text) - 1))
    piece = data.draw(st.text(alphabet='|+->"{}[]:,Fail GPU0\n', max_size=12))
    snapshot(read(text[:at] + piece + text[at + len(piece) :]))


DISCOVERY = (
    "1 GPU found.\n+--------+----+\n| GPU ID | Device Information |\n+--------+----+\n"
    "| 0      | Name: NVIDIA H100 80GB HBM3 |\n|        | PCI Bus ID: 00000000:53:00.0 |\n"
    "|        | Device UUID: GPU-00000000-1111-2222-3333-444444444440 |\n+--------+----+\n"
)


def test_the_child_names_gpus_by_their_uuids(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(DISCOVERY, encoding="utf-8")
    (tmp_path / "health").write_text(
        out.health("Warning", {"0": {"PCIe system": ("Warning", _REPLAYS)}}), encoding="utf-8"
    )
    install(tmp_path, "dcgmi", f'if [ "$1" = discovery ]; then cat {tmp_path}/list; else cat {tmp_path}/health; fi')
    assert faults(dcgm.look(tmp_path)) == {("PcieReplays", "gpu/GPU-00000000-1111-2222-3333-444444444440")}


def test_an_engine_that_is_not_there_or_blocks_leaves_the_answer_to_the_supervisor(tmp_path: Path) -> None:
    assert "no dcgmi" in dcgm.look(tmp_path).encode()
    install(tmp_path, "dcgmi", "echo 'Error: Unable to connect to host engine.'; exit 1")
    with pytest.raises(NoAnswerError, match="host engine"):
        dcgm.look(tmp_path)
    install(tmp_path, "dcgmi", "exec sleep 60")
    with pytest.raises(NoAnswerError, match="did not end"):
        dcgm.look(tmp_path, deadline=0.4)
