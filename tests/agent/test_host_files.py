"""Where links of the host lead, and what is read of its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetwell.agent.host_files import Names, end_of, inside, sign, whole


def test_links_lead_where_they_lead_for_the_host(tmp_path: Path) -> None:
    root = tmp_path / "host"
    (root / "mnt/disk0/containerd").mkdir(parents=True)
    (root / "var/lib").mkdir(parents=True)
    (root / "var/lib/containerd").symlink_to("/mnt/disk0/containerd")
    (root / "mnt/here").symlink_to("disk0/../disk0")
    (root / "var/out").symlink_to("../../../../../mnt")
    assert inside(str(root), "var/lib/containerd/x") == f"{root}/mnt/disk0/containerd/x"
    assert inside(str(root), "/mnt/here//containerd/.") == f"{root}/mnt/disk0/containerd"
    assert inside(str(root), "var/out/disk0") == f"{root}/mnt/disk0"
    assert inside(str(root), "no/such/file") == f"{root}/no/such/file"
    assert inside("/", "proc") == "/proc"


def test_links_that_lead_round_are_no_path(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("/a")
    with pytest.raises(OSError, match="symbolic links"):
        inside(str(tmp_path), "a/x")


def test_only_regular_files_are_read_and_no_more_of_them_than_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    assert (end_of(str(file), 4), whole(str(file), 10), whole(str(file), 9)) == (b"6789", b"0123456789", b"")
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "gone", "."):
        assert sign(str(tmp_path / name)) is None
        assert (end_of(str(tmp_path / name), 4), whole(str(tmp_path / name), 10)) == (b"", b"")


def test_a_file_that_another_one_is_renamed_over_has_another_sign(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_bytes(b"a")
    other.write_bytes(b"b")
    before = sign(str(file))
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)
    assert sign(str(file)) != before


def test_a_directory_is_listed_when_it_has_changed(tmp_path: Path) -> None:
    names = Names()
    (tmp_path / "one").touch()
    os.utime(tmp_path, (1, 1))
    assert names.read(str(tmp_path), 10)
    assert names.now == ("one",)
    assert not names.read(str(tmp_path), 10)
    (tmp_path / "two").touch()
    assert names.read(str(tmp_path), 1)
    assert len(names.now) == 1
    with pytest.raises(NotADirectoryError):
        names.read(str(tmp_path / "one"), 10)
