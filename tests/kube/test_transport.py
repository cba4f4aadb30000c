"""Timeouts, retries, tokens and the fence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.config import ConnectionConfig, ExecPlugin
from fleetwell.kube.credentials import ExecToken, TokenFile
from fleetwell.kube.errors import ConfigError, Fenced, ServerError, TooManyRequests, Unauthorized, Unreachable
from fleetwell.kube.resource import NODES
from kube.conftest import Pauses
from kube.fake_api import Answer, FakeApi, node, status

N1 = "/api/v1/nodes/n1"


async def _patch(client: Client) -> None:
    await client.patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}}, kind=PatchKind.MERGE)


async def test_reads_are_repeated_with_growing_pauses(api: FakeApi, client: Client, pauses: Pauses) -> None:
    broken = status(503, "ServiceUnavailable", "starting")
    api.answer("GET", N1, broken, Answer(cut=True), broken, Answer(body=node("n1", 1)))
    await client.get(NODES, "n1")
    assert len(pauses) == 3
    assert pauses[0] <= 0.1 < pauses[2] <= 0.4


async def test_a_retry_after_is_the_least_that_is_waited(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", N1, Answer(429, b"busy", {"Retry-After": "2"}), Answer(body=node("n1", 1)))
    await client.get(NODES, "n1")
    assert 2 <= pauses[0] <= 2.1


async def test_reads_end_when_patience_does(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", N1, Answer(429, b"busy", {"Retry-After": "60"}))
    with pytest.raises(TooManyRequests):
        await client.get(NODES, "n1")
    assert pauses == []


@pytest.mark.parametrize("answer", [status(500, "InternalError", "boom"), Answer(cut=True)])
async def test_a_mutating_request_that_may_have_been_carried_out_is_sent_once(
    api: FakeApi, client: Client, answer: Answer
) -> None:
    api.answer("PATCH", N1, answer)
    with pytest.raises((ServerError, Unreachable)) as failed:
        await _patch(client)
    assert len(api.seen) == 1
    if isinstance(failed.value, Unreachable):
        assert failed.value.sent
        assert "may have been carried out" in str(failed.value)


async def test_the_http_library_repeats_nothing_on_a_kept_connection(api: FakeApi, client: Client) -> None:
    api.answer("GET", N1, Answer(body=node("n1", 1)))
    api.answer("DELETE", N1, Answer(cut=True))
    await client.get(NODES, "n1")
    with pytest.raises(Unreachable):
        await client.delete(NODES, "n1", uid="u")
    assert len(api.asked("DELETE")) == 1


async def test_a_mutating_request_that_api_priority_turned_away_is_repeated(api: FakeApi, client: Client) -> None:
    api.answer("PATCH", N1, Answer(429, b"busy", {"Retry-After": "1"}), Answer(body=node("n1", 2)))
    await _patch(client)
    assert len(api.seen) == 2


async def test_an_eviction_that_a_budget_refused_is_not_repeated(api: FakeApi, client: Client) -> None:
    path = "/api/v1/namespaces/x/pods/p/eviction"
    api.answer("POST", path, status(429, "TooManyRequests", "no", causes=[{"reason": "DisruptionBudget"}]))
    with pytest.raises(TooManyRequests):
        await client.evict("p", "x", uid="u")
    assert len(api.seen) == 1


async def test_a_request_that_gets_no_answer_ends_at_its_timeout(api: FakeApi, client: Client) -> None:
    api.answer("PATCH", N1, Answer(hang=True))
    with pytest.raises(Unreachable, match=r"no answer within 0\.05 s") as failed:
        await client.patch(NODES, "n1", {}, kind=PatchKind.MERGE, timeout=0.05)
    assert failed.value.sent


async def test_a_server_that_is_not_there_was_sent_nothing(pauses: Pauses) -> None:
    config = ConnectionConfig(server="http://127.0.0.1:1")
    async with Client(config, user_agent="t", patience=1, sleep=pauses) as client:
        with pytest.raises(Unreachable, match="nothing was sent") as failed:
            await client.without_retries().get(NODES, "n1")
    assert not failed.value.sent
    assert failed.value.__cause__ is not None


async def test_a_fenced_request_is_not_sent(api: FakeApi, client: Client) -> None:
    def shut(_: float) -> None:
        raise Fenced("not the leader")

    with pytest.raises(Fenced):
        await _patch(client.fenced_by(shut))
    assert api.seen == []


async def test_the_fence_is_asked_for_every_attempt_and_never_for_reads(api: FakeApi, client: Client) -> None:
    asked: list[float] = []

    def once(timeout: float) -> None:
        asked.append(timeout)
        if len(asked) > 1:
            raise Fenced("lost while waiting")

    api.answer("PATCH", N1, Answer(429, b"busy", {"Retry-After": "1"}))
    api.answer("GET", N1, Answer(body=node("n1", 1)))
    fenced = client.fenced_by(once)
    await fenced.get(NODES, "n1")
    with pytest.raises(Fenced):
        await _patch(fenced)
    assert asked == [5.0, 5.0]
    assert len(api.asked("PATCH")) == 1


async def test_a_rotated_token_is_read_again_when_the_server_refuses_the_old_one(
    api: FakeApi, tmp_path: Path, pauses: Pauses
) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    api.answer(
        "GET", N1, Answer(body=node("n1", 1)), status(401, "Unauthorized", "expired"), Answer(body=node("n1", 2))
    )
    config = ConnectionConfig(server=api.config.server, token_file=token)
    async with Client(config, user_agent="t", sleep=pauses) as client:
        await client.get(NODES, "n1")
        token.write_text("new\n")
        await client.get(NODES, "n1")
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_token_that_stays_refused_is_an_error(api: FakeApi, client: Client) -> None:
    api.answer("GET", N1, status(401, "Unauthorized", "who?"))
    with pytest.raises(Unauthorized):
        await client.get(NODES, "n1")
    assert len(api.seen) == 1


async def test_a_token_file_is_read_again_after_a_while_and_may_vanish(tmp_path: Path) -> None:
    clock = [0.0]
    now: Callable[[], float] = lambda: clock[0]  # noqa: E731 (a clock of one line)
    token = tmp_path / "token"
    token.write_text("one")
    source = TokenFile(token, now=now)
    assert await source.token() == "one"
    token.write_text("two")
    assert await source.token() == "one"
    clock[0] = 11.0
    assert await source.token() == "two"
    token.unlink()
    clock[0] = 22.0
    assert await source.token() == "two"
    with pytest.raises(ConfigError, match="cannot be read"):
        await TokenFile(token).token()


async def test_a_credential_command_runs_again_only_when_its_token_ends(tmp_path: Path) -> None:
    printed = {"status": {"token": "t", "expirationTimestamp": "1970-01-01T00:10:00Z"}}
    (tmp_path / "answer").write_bytes(msgspec.json.encode(printed))
    script = (
        f'echo run >> {tmp_path}/runs; case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) cat {tmp_path}/answer;; esac'
    )
    plugin = ExecPlugin("client.authentication.k8s.io/v1", "sh", ("-c", script))
    clock = [0.0]
    source = ExecToken(plugin, "test", wall=lambda: clock[0])
    assert await source.token() == "t"
    assert await source.token() == "t"
    clock[0] = 580.0
    assert await source.token() == "t"
    assert len((tmp_path / "runs").read_text().split()) == 2


async def test_a_credential_command_that_is_missing_is_named(tmp_path: Path) -> None:
    plugin = ExecPlugin("client.authentication.k8s.io/v1", str(tmp_path / "gone"), install_hint="Install it.")
    with pytest.raises(ConfigError, match=r"gone.*Install it\."):
        await ExecToken(plugin, "test").token()
