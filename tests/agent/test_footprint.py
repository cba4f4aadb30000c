"""What an agent's process holds is paid by every node: its imports are kept to what it needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fleetwell.probes import launch

HEAVY = ("rich", "pygments", "lightkube", "httpx", "yaml", "pydantic", "numpy", "torch", "pynvml", "prometheus_client")


def imported_by(code: str) -> set[str]:
    """Run code in a fresh interpreter and give the modules that it has then."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    return set(done.stdout.split())


def test_an_agent_imports_nothing_heavy() -> None:
    assert imported_by("import fleetwell.cli.agent").isdisjoint(HEAVY)


def test_an_agent_imports_nothing_that_only_its_children_need() -> None:
    found = imported_by("import fleetwell.cli.agent")
    only = ("nvml", "nvidia_smi", "dcgm", "sysfs", "nic_", "pci", "efa", "infiniband")
    assert not [name for name in found if name.startswith(tuple(f"fleetwell.probes.{each}" for each in only))]


def test_what_was_kept_away_while_importing_can_be_imported_afterwards() -> None:
    code = "import fleetwell.cli.agent, rich.console, ctypes.util, ssl; assert ssl.create_default_context()"
    assert "rich.console" in imported_by(code)


def test_an_agent_does_not_hold_what_the_standard_library_drags_along() -> None:
    needless = {"tempfile", "shutil", "lzma", "zipfile", "urllib.request", "http.client", "importlib.resources"}
    assert imported_by("import fleetwell.cli.agent").isdisjoint(needless)


def test_the_environments_proxies_are_still_found() -> None:
    code = (
        "from fleetwell.kube.http_library import aiohttp; import os; os.environ['http_proxy'] = 'http://a.example:1'; "
        "from aiohttp import helpers; from yarl import URL; "
        "assert helpers.get_env_proxy_for_url(URL('http://b.example'))[0].host == 'a.example'"
    )
    assert "urllib.request" in imported_by(code)


def test_a_child_is_started_without_what_it_never_calls() -> None:
    argv = launch.python("report")
    code = argv[argv.index("-c") + 1].partition("main = ")[0]
    found = imported_by(f"{code}")
    assert "pathlib" in found
    assert found.isdisjoint({"urllib.parse", "ipaddress"})
    assert "urllib.parse" in imported_by(f"{code}\nimport urllib.parse; assert urllib.parse.quote('ü') == '%C3%BC'")


@pytest.mark.parametrize("child", ["nvml", "sysfs"])
def test_a_child_imports_neither_what_the_agent_has_nor_what_it_does_not_use(child: str) -> None:
    needless = {"asyncio", "msgspec", "structlog", "aiohttp", "subprocess", "tempfile"}
    assert imported_by(f"import fleetwell.probes.{child}").isdisjoint(needless)


def test_nvml_is_bound_as_ever_though_its_imports_are_fewer() -> None:
    code = "from fleetwell.probes.nvml_binding import pynvml; assert pynvml.NVML_ERROR_GPU_IS_LOST"
    assert "ctypes.util" not in imported_by(code)
