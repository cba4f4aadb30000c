"""A child that starts with less has all that it may ask for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fleetwell.probes import launch


def test_what_a_child_leaves_out_at_its_start_is_there_when_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        "import pathlib, sys\n"
        "def main():\n"
        "    before = 'ipaddress' in sys.modules\n"
        "    print(before, pathlib.Path('/a b').as_uri())\n"
        "    from urllib.parse import urlsplit\n"
        "    print(urlsplit('https://host:1/path').port)\n"
    )
    argv = launch.python("none")
    done = subprocess.run(
        [*argv[:-1], "child"],
        env={**launch.environment(), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "file:///a%20b", "1"]
