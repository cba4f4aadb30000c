"""Free ports."""

import socket

import pytest

from fleetwell.lab import ports
from fleetwell.lab.ports import NoFreePortError, free_ports


def test_the_ports_differ_and_can_be_listened_on() -> None:
    found = free_ports(5)
    assert len(set(found)) == 5
    for port in found:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports._is_free("127.0.0.1", server.getsockname()[1])


def test_when_no_port_is_free_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda host, port: False)
    with pytest.raises(NoFreePortError, match="found 0 of 2"):
        free_ports(2)


def test_no_port_is_one_that_the_kernel_gives_to_clients() -> None:
    first = ports._first_ephemeral()
    assert all(port < first for port in free_ports(20))
