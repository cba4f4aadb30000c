"""A kernel log in every form that it is saved in says the same, and never what user space wrote into it."""

import datetime as dt
import json
import re
import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetwell.health.catalogue import read_data
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.log_forms import Form, LogRecord, records
from fleetwell.health.log_stamp import MONTH, epoch_of
from fleetwell.health.log_stimuli import stimuli
from fleetwell.health.stimuli import NewBoot
from fleetwell.health.triage import findings, initial, step
from fleetwell.health.triage_state import TriageSettings
from fleetwell.health.vocabulary import BootId, Finding

XID = "NVRM: Xid (PCI:0000:b3:00): 79, pid=1, name=a, GPU has fallen off the bus."
NOW = dt.datetime(2025, 6, 13, tzinfo=dt.UTC).timestamp()


def journal(message: object = XID, **fields: object) -> str:
    entry = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "PRIORITY": "3", "_BOOT_ID": "b1", "MESSAGE": message}
    return json.dumps({**entry, **fields})


def one(line: str | bytes, form: Form = Form.AUTO) -> LogRecord:
    (record,) = records([line], form, now=NOW)
    return record


def found(*lines: str | bytes, form: Form = Form.AUTO) -> tuple[Finding, ...]:
    settings = TriageSettings()
    state = initial(BootId("boot"), settings)
    for stimulus in stimuli(records(lines, form, now=NOW), KernelLogReader(), BootId("boot")):
        state, _ = step(state, stimulus, settings)
    return findings(state)


FORMS = [
    (XID, None, None),
    (f"[ 1843.308145] {XID}", None, 1843.308145),
    (f"[ 1843.308145 <    0.000012>] {XID}", None, 1843.308145),
    (f"[ 1843.308145] [   T123] {XID}", None, 1843.308145),
    (f"[ 1843.308145][  T512] {XID}", None, 1843.308145),
    (f"[ 1843.308145][    C3] {XID}", None, 1843.308145),
    (f"\x1b[32m[ 1843.308145] \x1b[0m\x1b[33m{XID}\x1b[0m", None, 1843.308145),
    (f"[Fri Jan 24 10:34:54 2025] {XID}", 1737714894.0, None),
    (f"[Fri Jan 24 10:34:54 2025][  T512] {XID}", 1737714894.0, None),
    (f"[Jan24 10:34] {XID}", None, None),
    (f"[  +0.000012] {XID}", None, None),
    (f"kern  :err   : 2025-01-25T10:34:54,859532+00:00 {XID}", 1737801294.859532, None),
    (f"kern  :err   : [ 1843.308145] {XID}", None, 1843.308145),
    (f"2025-01-25T10:34:54,859532+00:00 {XID}", 1737801294.859532, None),
    (f"<3>[ 1843.308145] {XID}", None, 1843.308145),
    (f"Jun 12 16:31:50 host kernel: {XID}", 1749745910.0, None),
    (f"Jun  2 16:31:50 host kernel: [  12.345678] {XID}", 1748881910.0, 12.345678),
    (f"Jun 12 16:31:50.123456 host kernel: {XID}", 1749745910.123456, None),
    (f"2025-05-11T10:35:49.123456+05:30 host kernel: [16450076.435595] {XID}", 1746939949.123456, 16450076.435595),
    (f"2025-05-11T10:35:49+0530 host kernel: {XID}", 1746939949.0, None),
    (f"Fri 2025-01-24 10:34:54 UTC host kernel: {XID}", 1737714894.0, None),
    (f"1737714894.123456 host kernel: {XID}", 1737714894.123456, None),
    (f"[ 1843.308145] host kernel: {XID}", None, 1843.308145),
    (f"<3>1 2025-05-11T10:35:49.123456+05:30 host kernel - - - {XID}", 1746939949.123456, None),
    (f"3,1234,987654321,-;{XID}", None, 987.654321),
    (f"3,1234,987654321,-,caller=T12;{XID}", None, 987.654321),
    (f"pcie-7: kern:     err: [2025-05-11T10:35:49.123456Z]: {XID}", 1746959749.123456, None),
    (f"2025-05-11T05:05:49.123Z cpu41:2100438){XID}", 1746939949.123, None),
    (f"2025-05-11T05:05:49.123Z In(182) vmkernel: cpu41:2100438)WARNING: {XID}", 1746939949.123, None),
    (f'{{"host":"pcie-7","program":"kernel","message":"{XID}"}}', None, None),
    (f'{{"_TRANSPORT":"kernel","PRIORITY":"3","message":"{XID}"}}', None, None),
    (f"pcie-7 login: [ 1843.308145] {XID}", None, 1843.308145),
    (f"&gt; [ 1843.308145] {XID}", None, 1843.308145),
    (f"Jun 12 16:31:50  kernel: {XID}", 1749745910.0, None),
    (f"Jun 12 16:31:50 kernel: {XID}", 1749745910.0, None),
    (f"Thu Jun 12 16:31:50 2025 host kernel: {XID}", 1749745910.0, None),
    (f"2025 Jun 12 16:31:50.250000 host ERR kernel: [   12.345678] {XID}", 1749745910.25, 12.345678),
    (f"cze 12 16:31:50 host kernel: {XID}", 1749745910.0, None),
    (f"juin 12 16:31:50 host kernel: {XID}", 1749745910.0, None),
    (f"6月 12 16:31:50 host kernel: {XID}", 1749745910.0, None),
    (f"[Do Jun 12 16:31:50 2025] {XID}", 1749745910.0, None),
    (f'<3>1 2025-05-11T10:35:49.123456+05:30 host kernel - ID7 [meta seq="4"] {XID}', 1746939949.123456, None),
    (f" kernel: {XID}", None, None),
    (f"kernel:[ 1843.308145] {XID}", None, 1843.308145),
    (journal(__REALTIME_TIMESTAMP="1737714894000000", __MONOTONIC_TIMESTAMP="5000000"), 1737714894.0, 5.0),
    (journal([ord(char) for char in XID]), None, None),
    (journal(SYSLOG_FACILITY=0), None, None),
]


@pytest.mark.parametrize(("line", "at", "uptime"), FORMS)
def test_a_line_says_the_same_in_every_form(line: str, at: float | None, uptime: float | None) -> None:
    for given_line in (line, line.encode(), line + "\r\n"):
        record = one(given_line)
        assert (record.text, record.from_kernel, record.at, record.uptime) == (XID, True, at, uptime)
    assert [finding.fault for finding in found(line)] == ["GpuFallenOffBus"]


@pytest.mark.parametrize(
    "line",
    [
        f"user  :err   : 2025-01-25T10:34:54,859532+00:00 {XID}",
        f"daemon:err   : [ 1843.308145] {XID}",
        f"<11>[ 1843.308145] {XID}",
        f"Jun 12 16:31:50 host app[12]: {XID}",
        f"Jun 12 16:31:50 host app: {XID}",
        f"Jun 12 16:31:50 host kernel[5]: {XID}",
        f"2026-05-11T10:35:49.123456+05:30 host app[1]: {XID}",
        f"2026-05-11T10:35:49+05:30 host kernel-log: {XID}",
        f"12,5,6,-;{XID}",
        f"pcie-7: user:     err: [2025-05-11T10:35:49.123456Z]: {XID}",
        f"2025-05-11T10:35:49.123456Z stderr F {XID}",
        f"2025-05-11T10:35:49.123456Z stderr F Jun 12 16:31:50 host app[12]: {XID}",
        f"> Jun 12 16:31:50 host app[12]: {XID}",
        f"Jun 12 16:31:50 kernel[5]: {XID}",
        journal(_TRANSPORT="stdout"),
        journal(_TRANSPORT="syslog", SYSLOG_IDENTIFIER="kernel"),
        journal(SYSLOG_FACILITY="1"),
        journal(SYSLOG_FACILITY="3"),
    ],
)
def test_what_user_space_wrote_does_not_count_in_any_form(line: str) -> None:
    assert not one(line).from_kernel
    assert found(line) == ()


WRAPPED = [
    "{}",
    "> {}",
    ">> > {}",
    "| {}",
    "    {}",
    "- {}",
    "```{}```",
    "`{}`",
    "<pre>{}</pre>",
    "<code>{}",
    "12:{}",
    "   345  {}",
    "/var/log/messages-20250612:{}",
    "./node-7/dmesg.txt:77:{}",
    "node-7: {}",
    "[pod/reader-x7/main] {}",
    "2025-06-12T16:31:51.123456Z {}",
    "2025-06-12T16:31:51.123456789Z stdout F {}",
    "2025-06-12T16:31:51.123Z i-0123456789abcdef0 {}",
    '{{"log":"{}\\n","stream":"stdout"}}',
    '{{"timestamp": 1, "message": "{}"}}',
    '            "textPayload": "{}",',
]


@pytest.mark.parametrize("around", WRAPPED)
@pytest.mark.parametrize("form", [f"[ 1843.308145] {XID}", f"Jun 12 16:31:50 host kernel: {XID}"])
def test_what_was_put_around_a_line_is_taken_off(around: str, form: str) -> None:
    record = one(around.format(form))
    assert (record.text, record.from_kernel, record.marked) == (XID, True, True)
    assert (record.uptime == 1843.308145) is form.startswith("[")


@pytest.mark.parametrize(
    "line",
    [
        f"trainer saw: {XID}",
        f"2025-06-12T16:31:51.123456Z stdout F watching for {XID}",
        f"2025-06-12T16:31:51.123456Z watcher saw this [ 1843.308145] {XID}",
        f'{{"level": "info", "message": "{XID}"}}',
        f'{{"level": "info", "message": "saw [ 1843.308145] {XID}"}}',
        f'            "message": "{XID}",',
        f'{{"program":"app","message":"{XID}"}}',
        f'{{"program":"kernel","_TRANSPORT":"syslog","message":"{XID}"}}',
        f"2025-05-11T05:05:49.123Z In(182) app: cpu41:2100438){XID}",
        f"INFO 12:00:01 watcher: {XID}",
        f"node_problem Warning {XID}",
    ],
)
def test_a_programs_message_that_quotes_a_line_stays_the_programs(line: str) -> None:
    assert found(line) == ()


def test_an_event_of_the_node_problem_detector_is_the_kernels_line() -> None:
    line = f"  Warning  XidError  5m  kernel-monitor, node-7  {XID}"
    assert [finding.fault for finding in found(line)] == ["GpuFallenOffBus"]


ENTRY = {
    "__REALTIME_TIMESTAMP": "1737714894000000",
    "__MONOTONIC_TIMESTAMP": "5000000",
    "_TRANSPORT": "kernel",
    "SYSLOG_FACILITY": "0",
    "MESSAGE": XID,
}


def export(entry: dict[str, str]) -> list[str]:
    return [*(f"{key}={value}" for key, value in entry.items()), ""]


def verbose(entry: dict[str, str]) -> list[str]:
    return [
        "Fri 2025-01-24 10:34:54.000000 UTC [s=0a1b;i=1;b=2c;m=4c4b40;t=62c;x=9]",
        *(f"    {key}={value}" for key, value in entry.items()),
    ]


def pretty(entry: dict[str, str]) -> list[str]:
    *most, last = (f'\t"{key}" : {json.dumps(value)}' for key, value in entry.items())
    return ["{", *(f"{line}," for line in most), last, "}"]


def sequence(entry: dict[str, str]) -> list[str]:
    return [f"\x1e{json.dumps(entry)}"]


def events(entry: dict[str, str]) -> list[str]:
    return [f"data: {json.dumps(entry)}", ""]


@pytest.mark.parametrize("printed", [export, verbose, pretty, sequence, events])
def test_a_journal_entry_of_several_lines_is_one_record(printed: Callable[[dict[str, str]], list[str]]) -> None:
    theirs = {**ENTRY, "_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "app"}
    lines = [*printed(ENTRY), *printed(theirs), *printed({**ENTRY, "__MONOTONIC_TIMESTAMP": "6000000"})]
    (finding,) = found(*lines)
    assert (finding.fault, finding.count) == ("GpuFallenOffBus", 2)
    assert [told.uptime for told in records(lines, now=NOW) if told.from_kernel and told.text == XID] == [5.0, 6.0]


def test_no_abbreviation_stands_for_two_months() -> None:
    table = tomllib.loads(read_data("months.toml"))
    names = [name for months in table.values() for name in months]
    assert len(names) == len(set(names))
    assert list(table) == [str(number) for number in range(1, 13)]
    assert all(re.fullmatch(MONTH, name) and name == name.lower() for name in names)


@pytest.mark.parametrize(
    "text",
    [
        "nvme nvme1: Removing after probe failure status: -19",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0",
        "infiniband efa_0: Admin queue is closed",
        "nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
    ],
)
@pytest.mark.parametrize("prefix", ["[   12.345678] ", "2025-01-25T10:34:54,859532+00:00 ", "kern  :err   : [ 1.0] "])
def test_a_driver_and_its_device_are_not_taken_for_host_and_program(prefix: str, text: str) -> None:
    record = one(prefix + text)
    assert (record.text, record.from_kernel) == (text, True)
    assert len(found(prefix + text)) == 1


def test_forms_may_be_mixed_and_what_is_no_entry_is_passed_over() -> None:
    lines: list[str | bytes] = [
        "",
        "{not json",
        '{"MESSAGE": null, "_TRANSPORT": "kernel"}',
        journal(),
        f"[ 1.0] {XID}",
        b"\xff\xfe",
        "-- No entries --",
    ]
    assert sum(finding.count for finding in found(*lines)) == 2


@pytest.mark.parametrize("head", ["[ 1843.308145] ", "kern  :err   : [ 1843.308145] ", "Feb 14 05:03:42 host kernel: "])
def test_the_next_lines_of_a_record_are_of_whoever_wrote_the_first_one(head: str) -> None:
    rest = [f"{' ' * len(head)}NVRM: (PCI ID: 10de:26b5) installed in this system has", f"{' ' * len(head)}{XID}"]
    told = list(records([f"{head}NVRM: The NVIDIA GPU 0000:b3:00.0", *rest], now=NOW))
    assert [one.text for one in told][1:] == [line.strip() for line in rest]
    assert {one.from_kernel for one in told} == {True}
    assert len({(one.at, one.uptime) for one in told}) == 1
    user = head.replace("kern  ", "user  ").replace(" kernel:", " app[7]:")
    if user != head:
        assert found(f"{user}x", f"{' ' * len(head)}{XID}") == ()


def document(*fields: str) -> list[str]:
    return ["{", '   "dmesg": [', "      {", *(f"         {field}" for field in fields), "      }", "   ]", "}"]


@pytest.mark.parametrize(
    ("fields", "at", "uptime"),
    [
        (('"pri": 3,', '"time":  1843.308145,', f'"msg": "{XID}"'), None, 1843.308145),
        (('"fac": "kern",', '"pri": "err",', '"time": 1.5,', f'"msg": "{XID}"'), None, 1.5),
        (('"pri": 3,', '"time": "2025-01-25T10:34:54,859532+00:00",', f'"msg": "{XID}"'), 1737801294.859532, None),
        (
            ('"pri": 3,', '"time": "Fri Jan 24 10:34:54 2025",', '"caller": "T5",', f'"msg": "{XID}"'),
            1737714894.0,
            None,
        ),
    ],
)
def test_dmesg_json_says_the_same(fields: tuple[str, ...], at: float | None, uptime: float | None) -> None:
    (record,) = records(document(*fields), now=NOW)
    assert (record.text, record.from_kernel, record.at, record.uptime) == (XID, True, at, uptime)
    compact = json.dumps(json.loads("\n".join(document(*fields))))
    (record,) = records([compact], now=NOW)
    assert (record.text, record.from_kernel, record.at, record.uptime) == (XID, True, at, uptime)


@pytest.mark.parametrize(
    "fields",
    [('"pri": 11,',), ('"fac": "user",', '"pri": "err",'), ('"fac": 5,',), (), ('"pri": true,',), ('"pri": -1,',)],
)
def test_in_dmesg_json_too_what_user_space_wrote_does_not_count(fields: tuple[str, ...]) -> None:
    (record,) = records(document(*fields, f'"msg": "{XID}"'))
    assert not record.from_kernel


def test_what_follows_a_dmesg_document_is_read_as_before() -> None:
    lines = [*document('"pri": 6,', '"time": 0.1,', '"msg": "x"'), f"[ 1.0] {XID}", *document('"pri": 3', '"msg": "y"')]
    assert [one.text for one in records(lines)] == ["x", XID, "y"]
    assert [one.text for one in records(['   "dmesg": [', f"[ 1.0] {XID}"])] == [XID]


def test_a_flood_of_different_lines_is_read_in_bounded_time_and_says_so() -> None:
    lines = [f"[{n / 1000:12.6f}] NVRM: Xid (PCI:0000:b3:00): 43, pid={n}, name=a, Ch {n}" for n in range(40_000)]
    told = {str(one.fault): one for one in found(*lines, f"[   50.000000] {XID}")}
    assert told["ApplicationFault"].count == 40_000 or "KernelLogFlood" in told
    assert "GpuFallenOffBus" in told


def test_lines_that_are_far_apart_keep_their_order() -> None:
    reset, none = (
        f"NVRM: Xid (PCI:0000:b3:00): 154, GPU recovery action changed from 0x0 (None) to {to}"
        for to in ("0x1 (GPU Reset Required)", "0x0 (None)")
    )
    assert found(*(f"[{at}.0] {text}" for at, text in ((1, reset), (100, none), (200, reset), (300, none)))) == ()
    assert len(found(*(f"[{at}.0] {text}" for at, text in ((1, reset), (100, none), (200, reset))))) == 1
    assert len(found(*(f"[1.{at}] {text}" for at, text in ((1, reset), (2, none), (3, reset))))) == 1


def test_the_form_may_be_given() -> None:
    lines = [f"3,1,5,-;{XID}", " SUBSYSTEM=pci", f"[ 1.0] {XID}", journal()]
    assert len(list(records(lines, Form.KMSG))) == 1
    assert len(list(records(lines, "journal"))) == 1
    assert len(list(records(lines))) == 3


def test_a_message_with_a_newline_in_the_journal_is_one_line() -> None:
    (finding,) = found(journal("NVRM: Xid (PCI:0000:b3:00): 136, Link 1\nmask 0x3"))
    assert finding.fault == "NvlinkTrainingFailed"


# --- times ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamp", "now", "expected"),
    [
        ("Dec 31 23:59:59", dt.datetime(2025, 1, 1, 0, 5, tzinfo=dt.UTC), "2024-12-31T23:59:59"),
        ("Jan  1 00:00:01", dt.datetime(2025, 1, 1, 0, 5, tzinfo=dt.UTC), "2025-01-01T00:00:01"),
        ("Jan  1 00:00:01", dt.datetime(2024, 12, 31, 23, 55, tzinfo=dt.UTC), "2025-01-01T00:00:01"),
        ("Feb 29 12:00:00", dt.datetime(2027, 3, 1, tzinfo=dt.UTC), "2024-02-29T12:00:00"),
    ],
)
def test_a_time_without_its_year_is_of_the_latest_year_that_fits(stamp: str, now: dt.datetime, expected: str) -> None:
    at = epoch_of(stamp, now.timestamp())
    assert at is not None
    assert dt.datetime.fromtimestamp(at, dt.UTC).isoformat()[:19] == expected
    assert epoch_of(stamp) is None


@given(st.text(max_size=40), st.floats(0, 4e9))
def test_no_stamp_makes_the_reader_fail(stamp: str, now: float) -> None:
    epoch_of(stamp, now)


def test_a_clock_that_is_set_back_does_not_tear_a_burst_apart() -> None:
    cut = "2025-05-11T10:35:49.0+00:00 host kernel: NVRM: Xid (PCI:0000:b3:00): 45, pid=1, name=a, Ch 1"
    assert [one.fault for one in found(f"2025-05-11T11:35:49.0+00:00 host kernel: {XID}", cut)] == ["GpuFallenOffBus"]


# --- boots ---------------------------------------------------------------------------------------------------------

VERSION = "Linux version 6.8.0-1030-aws (buildd@lcy02) #32-Ubuntu SMP"


@pytest.mark.parametrize(
    "between",
    [
        [f"[    0.000000] {VERSION}"],
        ["[    0.000000] Booting Linux on physical CPU 0x0000000000", f"[    0.000000] {VERSION}"],
        ["[    3.000000] usb 1-1: new device"],
        ["-- Boot 0123456789abcdef0123456789abcdef --"],
        ["-- Reboot --"],
        [f"Jun 12 16:31:50 host kernel: {VERSION}"],
        ["6,0,0,-;the first record"],
    ],
)
def test_another_boot_begins_where_the_log_says_so(between: list[str]) -> None:
    before = f"[ 9999.000000] {XID}" if not between[0].startswith("6,") else f"3,77,9999000000,-;{XID}"
    told = list(records([before, *between, "[   20.000000] usb 1-2: x"], now=NOW))
    assert (told[0].boot, told[-1].boot) == (0, 1)


def test_a_journal_tells_boots_by_their_ids() -> None:
    told = list(records([journal(_BOOT_ID="a"), journal(_BOOT_ID="a"), journal(_BOOT_ID="b"), journal(_BOOT_ID="a")]))
    assert [record.boot for record in told] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    "line",
    [
        "[ 9999.5] Linux version 6[12]: segfault at 0 ip 0 sp 0 error 4 in libc.so",
        f"Jun 12 16:31:50 host app[5]: {VERSION}",
        "[ 9998.9] a line of another processor",
    ],
)
def test_a_program_cannot_begin_another_boot(line: str) -> None:
    told = list(records([f"[ 9999.000000] {XID}", line]))
    assert told[-1].boot == 0


def test_a_journal_that_follows_other_forms_is_of_the_same_boot() -> None:
    assert [record.boot for record in records([f"[ 1.0] {XID}", journal(), journal(_BOOT_ID="b2")])] == [0, 0, 1]


def test_findings_of_an_earlier_boot_are_told_from_those_of_the_last_one() -> None:
    lines = [f"[ 20.0] {XID}", "-- Reboot --", "[ 25.0] NVRM: Xid (PCI:0000:b3:00): 45, pid=1, name=a, Ch 1"]
    assert {one.fault: one.boot_id for one in found(*lines)} == {
        "GpuFallenOffBus": "boot",
        "ApplicationChannelRemoved": "boot+1",
    }
    assert [one for one in stimuli(records(lines), KernelLogReader(), BootId("x")) if isinstance(one, NewBoot)]


# --- hostile input -------------------------------------------------------------------------------------------------


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200)), st.sampled_from(Form))
def test_no_line_makes_the_reader_fail(line: str | bytes, form: Form) -> None:
    list(records([line], form, now=NOW))


@given(
    st.dictionaries(
        st.sampled_from(["MESSAGE", "_TRANSPORT", "SYSLOG_FACILITY", "_BOOT_ID", "__REALTIME_TIMESTAMP"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda x: st.lists(x, max_size=4)
        ),
    )
)
def test_no_journal_entry_makes_the_reader_fail(entry: dict[str, object]) -> None:
    for record in records([json.dumps(entry)]):
        assert not record.from_kernel or not entry or entry.get("_TRANSPORT") in (None, "kernel")


def test_a_line_nested_without_end_is_no_entry() -> None:
    assert all(
        not record.from_kernel or record.text.startswith("{")
        for record in records(["{" * 100_000, '{"a":' + "[" * 60_000])
    )
