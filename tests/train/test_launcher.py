from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

from train.launching import Ground, eventually

# A rank that fails as the first argument says: RANK:GENERATION:HOW, else trains for ever or ends.
FAILS = """
import os, signal, sys, time
rank, generation, how = sys.argv[1].split(":")
if os.environ["RANK"] == rank and os.environ["FLEETWELL_GENERATION"] == generation:
    print("about to fail", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL) if how == "kill" else sys.exit(int(how))
if os.environ["FLEETWELL_GENERATION"] == generation:
    time.sleep(60)
print("done with", os.environ["WORLD_SIZE"], os.environ["TORCHELASTIC_RESTART_COUNT"])
"""

# Steps like fleetwell.train does, without torch: the launcher sees the same page.
STEPS = """
import os, sys, time
from fleetwell.train.channel import Channel, WorkerPhase
channel = Channel.open(os.environ["FLEETWELL_CHANNEL"])
begin = 30 if os.environ["FLEETWELL_GENERATION"] != "1" else 0
channel.resumed = channel.step = begin
channel.phase = WorkerPhase.STEPPING
print("stepping", flush=True)
while not channel.drain_asked and not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
    channel.step += 1
if channel.drain_asked:
    channel.step = channel.saved = 30
    channel.phase = WorkerPhase.DRAINED
"""

DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
if os.environ["RANK"] == "0":
    time.sleep(0.3)
    raise SystemExit(9)
time.sleep(60)
"""


def test_a_dead_worker_restarts_all_and_the_run_finishes(ground: Ground) -> None:
    one = ground.launch(ground.script(FAILS), "1:1:kill", nproc=2, flags=["--max-restarts", "1"])
    assert one.wait() == 0, one.output
    assert "[rank 0] done with 2 1" in one.output
    assert "rank 1 on node 0 was killed by SIGKILL, last line: about to fail" in one.output
    ended = ground.events("generation_ended")
    assert [event["reason"] for event in ended] == ["failure", "done"]
    assert ended[0]["root"]["rank"] == 1
    assert [event["generation"] for event in ground.events("generation_started")] == [1, 2]


def test_without_restarts_left_the_exit_code_is_the_roots_and_the_pod_says_why(ground: Ground) -> None:
    script = ground.script(FAILS)
    nodes = [ground.launch(script, "1:1:23", node=node, nnodes=2) for node in (0, 1)]
    assert [one.wait() for one in nodes] == [23, 23]
    for node in (0, 1):
        word = json.loads((ground.path / f"word-{node}.json").read_text())
        assert (word["node"], word["rank"], word["code"], word["evidence"]) == (1, 1, 23, "about to fail")


def test_a_signal_as_root_gives_exit_code_1(ground: Ground) -> None:
    assert ground.launch(ground.script(FAILS), "0:1:kill").wait() == 1


def test_a_worker_that_ignores_sigterm_is_killed_within_the_bound(ground: Ground) -> None:
    one = ground.launch(ground.script(DEAF), nproc=2)
    assert one.wait(within=15) == 9
    assert "survive" not in one.output


def test_a_drained_launcher_leaves_with_143_and_its_successor_goes_on_where_it_saved(ground: Ground) -> None:
    script, end = ground.script(STEPS), ground.path / "end"
    nodes = [ground.launch(script, str(end), node=node, nnodes=2) for node in (0, 1)]
    eventually(lambda: bool(ground.events("generation_resumed")), what="the first step")
    # plain scripts cannot agree by themselves: both nodes are asked, as when a whole job is moved
    nodes[1].process.send_signal(signal.SIGTERM)
    nodes[0].process.send_signal(signal.SIGTERM)
    assert [one.wait() for one in nodes] == [143, 143]
    again = [ground.launch(script, str(end), node=node, nnodes=2) for node in (0, 1)]
    eventually(lambda: len(ground.events("generation_resumed")) == 2, what="the resume")
    end.touch()
    assert [one.wait() for one in again] == [0, 0]
    assert ground.events("generation_ended")[0]["reason"] == "drain"
    assert ground.events("generation_ended")[0]["saved_step"] == 30
    resumed = ground.events("generation_resumed")[1]
    assert (resumed["generation"], resumed["resumed_step"], resumed["steps_lost"]) == (2, 30, 0)


def test_a_drain_before_anything_steps_ends_without_a_save_and_spends_no_restart(ground: Ground) -> None:
    script = ground.script("import time; print('importing', flush=True); time.sleep(60)")
    nodes = [ground.launch(script, node=node, nnodes=2) for node in (0, 1)]
    nodes[1].sees("importing")
    nodes[1].process.send_signal(signal.SIGTERM)
    assert nodes[1].wait() == 143
    eventually(lambda: bool(ground.events("generation_ended")), what="the end")
    ended = ground.events("generation_ended")[0]
    assert (ended["reason"], ended["restarts"]) == ("drain", 0)
    assert "without a save" in ended["why"]
    assert nodes[0].process.poll() is None


def test_workers_that_do_not_drain_are_ended_when_the_grace_runs_out(ground: Ground) -> None:
    stuck = STEPS.replace("while not channel.drain_asked", "while True")
    one = ground.launch(ground.script(stuck), "/nonexistent", flags=["--grace", "2"])
    eventually(lambda: bool(ground.events("generation_resumed")), what="the first step")
    one.process.send_signal(signal.SIGTERM)
    assert one.wait(within=8) == 143
    assert "the grace runs out" in one.output


def test_a_lost_node_0_takes_its_workers_with_it_and_the_others_meet_its_successor(ground: Ground) -> None:
    script, end = ground.script(STEPS), ground.path / "end"
    first, second = (ground.launch(script, str(end), node=node, nnodes=2) for node in (0, 1))
    eventually(lambda: bool(ground.events("generation_resumed")), what="the first step")
    first.process.send_signal(signal.SIGKILL)
    first.wait()
    successor = ground.launch(script, str(end), node=0, nnodes=2)
    eventually(lambda: len(ground.events("generation_resumed")) == 2, what="the resume")
    end.touch()
    assert [successor.wait(), second.wait()] == [0, 0]
    lost = ground.events("generation_ended")[0]
    assert (lost["generation"], lost["reason"]) == (1, "launcher_lost")
    assert lost["last_step"] > 0


def test_a_lost_other_node_is_waited_for_and_spends_no_restart(ground: Ground) -> None:
    script, end = ground.script(STEPS), ground.path / "end"
    first, second = (ground.launch(script, str(end), node=node, nnodes=2) for node in (0, 1))
    eventually(lambda: bool(ground.events("generation_resumed")), what="the first step")
    second.process.send_signal(signal.SIGKILL)
    second.wait()
    successor = ground.launch(script, str(end), node=1, nnodes=2)
    eventually(lambda: len(ground.events("generation_resumed")) == 2, what="the resume")
    end.touch()
    assert [first.wait(), successor.wait()] == [0, 0]
    lost = ground.events("generation_ended")[0]
    assert (lost["reason"], lost["restarts"]) == ("launcher_lost", 0)


def test_strangers_at_the_endpoint_change_nothing(ground: Ground) -> None:
    script, end = ground.script(STEPS), ground.path / "end"
    nodes = [ground.launch(script, str(end), node=node, nnodes=2) for node in (0, 1)]
    eventually(lambda: bool(ground.events("generation_resumed")), what="the first step")
    claim = {"type": "Hello", "node": 1, "nnodes": 2, "nproc": 1, "run_id": "none", "launcher": "mallory"}
    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\xff" * 200_000,
        b'{"type":"Concluded","generation":1,"reason":"done","why":""}\n',
        b'{"type":"Exited","generation":1,"outcome":"failed","last_step":0,"saved_step":0}\n',
        b'{"type":"Hello","node":-1}\n',
        b"[" * 60_000 + b"\n",
        json.dumps(claim).encode() + b"\n",
        json.dumps({**claim, "node": 7}).encode() + b"\n",
    ]
    for data in garbage:
        with socket.create_connection(("127.0.0.1", ground.port), timeout=5) as stranger:
            try:
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass
            except ConnectionError:
                pass
    end.touch()
    assert [one.wait() for one in nodes] == [0, 0]
    assert len(ground.events("generation_started")) == 1


def test_the_launcher_process_never_imports_torch() -> None:
    code = "import sys, fleetwell.cli.run, fleetwell.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=os.environ).returncode == 0
