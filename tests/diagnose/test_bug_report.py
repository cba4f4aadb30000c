from fleetwell.diagnose.bug_report import Part, split

RULE = "_" * 44


def test_a_part_ends_at_the_next_rule() -> None:
    report = split([RULE, "", "dmesg:", "", "[    1.0] one", RULE, "", "*** /proc/cmdline", "[    2.0] two"])
    assert report.lines(Part.KERNEL) == ["", "[    1.0] one"]


def test_only_the_first_query_of_nvidia_smi_is_a_look_at_the_gpus() -> None:
    lines = [RULE, "/usr/bin/nvidia-smi --query", "", "first", "/usr/bin/nvidia-smi --query --unit", "", "second"]
    assert split(lines).lines(Part.NVIDIA_SMI) == ["", "first"]


def test_journals_of_other_boots_are_kept_apart() -> None:
    lines = [RULE, "Scanning kernel log files for NVIDIA kernel messages:", "", "  journalctl -b -0:", "now"]
    report = split([*lines, "  journalctl -b -2:", "then", "  /var/log/kern.log:", "whenever"])
    assert report.lines(Part.JOURNAL) == ["now"]
    assert report.lines(Part.EARLIER_BOOT) == ["then"]
    assert report.lines(Part.KERNEL_FILES) == ["whenever"]


def test_a_report_says_whether_it_has_its_beginning_and_its_end() -> None:
    begun = split([RULE, "", "Start of NVIDIA bug report log file.  Please include this file"])
    assert (begun.begins, begun.ends) == (True, False)
    assert split([RULE, "", "End of NVIDIA bug report log file."]).ends


def test_a_missing_version_file_is_no_version() -> None:
    assert not split([RULE, "*** /proc/driver/nvidia/./version does not exist", "x"]).lines(Part.DRIVER)
