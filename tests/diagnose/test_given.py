import gzip
import io
import sys
from pathlib import Path

import pytest

from fleetwell.diagnose import given
from fleetwell.diagnose.given import Given, GivenError


def file(folder: Path, content: bytes) -> Given:
    path = folder / "input"
    path.write_bytes(content)
    return Given(str(path))


def test_packed_files_are_read_as_they_are(tmp_path: Path) -> None:
    assert list(file(tmp_path, gzip.compress(b"one\ntwo\n")).lines()) == ["one", "two"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_a_shell_writes_into_a_file_is_read_in_its_encoding(tmp_path: Path, encoding: str) -> None:
    assert file(tmp_path, "GPU 0: 31 °C\r\n".encode(encoding)).text() == "GPU 0: 31 °C\r\n"


def test_a_packed_file_that_breaks_off_says_so_and_keeps_what_was_there(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"line %d of many\n" % number for number in range(5000)))
    cut = file(tmp_path, whole[: len(whole) // 2])
    assert next(cut.lines()) == "line 0 of many"
    assert list(file(tmp_path, whole[: len(whole) // 2]).lines())
    again = file(tmp_path, whole[: len(whole) // 2])
    list(again.lines())
    assert "breaks off" in again.cut


def test_a_bomb_is_read_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "STREAM_LIMIT", 1 << 20)
    monkeypatch.setattr(given, "TEXT_LIMIT", 1 << 20)
    bomb = gzip.compress(b"x" * (8 << 20))
    lines = file(tmp_path, bomb)
    assert sum(map(len, lines.lines())) <= 1 << 20
    text = file(tmp_path, bomb)
    assert len(text.text()) == 1 << 20
    assert "only the first 1 MiB" in text.cut


def test_a_flood_of_empty_lines_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "MAX_LINES", 100)
    lines = file(tmp_path, b"\n" * 1000)
    assert len(list(lines.lines())) == 100
    assert "only the first 100 lines" in lines.cut


def test_what_stands_behind_a_line_that_is_too_long_is_no_line_of_its_own(tmp_path: Path) -> None:
    words = b"NVRM: Xid (PCI:0000:05:00): 79\n"
    lines = list(file(tmp_path, b"a" * given.LINE_LIMIT + words + b"next\n").lines())
    assert [line[:8] for line in lines] == ["a" * 8, "next"]


def test_standard_input_is_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"one\ntwo\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert list(Given("-").lines()) == ["one", "two"]


@pytest.mark.parametrize("form", ["utf-16-le", "utf-16-be"])
def test_what_powershell_redirected_into_a_file_is_read_as_it_is(tmp_path: Path, form: str) -> None:
    lines = [f"[ {number}.000000] Prozeß \N{ROCKET} {number}" for number in range(2000)]
    content = ("\ufeff" + "\r\n".join(lines)).encode(form)
    assert list(file(tmp_path, content).lines()) == lines
    assert file(tmp_path, content).text().splitlines() == lines
    assert list(file(tmp_path, content[:-1]).lines())[:-1] == lines[:-1]
    assert list(file(tmp_path, gzip.compress(content)).lines()) == lines


def test_a_file_that_cannot_be_opened_is_said_to(tmp_path: Path) -> None:
    with pytest.raises(GivenError, match="cannot be read"):
        Given(str(tmp_path / "none")).text()
