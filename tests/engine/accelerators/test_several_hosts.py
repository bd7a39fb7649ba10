"""Several real host processes on this machine: they train what one would, one is lost, and all stop together."""

import json
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import helpers
from tests.helpers import LIMIT_S, ROOT, Host, all_of, events_of, fork_host, run_forked, small_config, the, wait_until
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.process.launch import prepare_resumption
from tpu_console.engine.runs import events
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.run_directory import RunDirectory

Start = Callable[..., list[Host]]


pytestmark = pytest.mark.slow

TOLERANCE = 1e-3
"""Largest difference of an epoch's loss, relative, as in `test_backends`."""

_GLOBAL_BATCH = 64
_FOREVER = {"epochs": 100_000}
"""Trains until it is killed or stopped."""

_NAME = socket.gethostname()
LOOPBACK = "127.0.0.1"


def config(replicas: int, **changes: Any) -> RunConfig:
    values = {
        "batch_size": _GLOBAL_BATCH // replicas,
        "epochs": 4,
        "accelerator": f"sim:{replicas}",
        "backend": "jax",
        "optimizer": {"name": "adam", "learning_rate": 2e-3},
    }
    return small_config(**values | changes)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start the hosts of a run, one replica each; none outlives the tests."""
    started: list[Host] = []

    def start(count: int, **changes: Any) -> list[Host]:
        with closing(socket.create_server((LOOPBACK, 0))) as server:
            place = {"count": count, "coordinator": f"{LOOPBACK}:{server.getsockname()[1]}"}
        for index in range(count):
            given = changes.get("hosts", {"index": index} if count > 1 else None)
            hosts = place | given if given is not None else {}
            folder = tmp_path_factory.mktemp(f"{count}-host-{index}")
            settings = config(changes.get("replicas", count), hosts=hosts, **changes.get("config", {}))
            started.append(host := Host(settings, folder, start=False))
            host.process = fork_host(host.run, changes.get("before", {}).get(index, ""))
        return started[-count:]

    yield start
    for host in started:
        host.kill()


def trains(hosts: list[Host]) -> None:
    """Wait until two epochs are over and every host has reported its figures."""

    def have_reported() -> bool:
        ended = [host.run.run_id for host in hosts if all_of(host.run, events.RunFailed)]
        assert not ended, [events_of(host.run)[-1] for host in hosts]
        seen = {sample.process for sample in all_of(hosts[0].run, events.HostSampled)}
        return len(all_of(hosts[0].run, events.EpochEnded)) >= 2 and len(seen) == len(hosts)

    wait_until(have_reported, "training", 180.0)


_MINE = """
import keras
from keras import layers

def build(shape, classes):
    hidden = layers.Dense(32, activation="relu")
    return keras.Sequential([keras.Input(shape), layers.Flatten(), hidden, layers.Dense(classes)])

def loss(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
"""


@pytest.fixture(scope="module")
def ended(start: Start, tmp_path_factory: pytest.TempPathFactory) -> list[RunDirectory]:
    """A run of one process with two replicas, and the two of a run on two hosts; their custom model gives logits."""
    file = tmp_path_factory.mktemp("mine") / "mine.py"
    file.write_text(_MINE, encoding="utf-8")
    mine = {"model": f"{file}:build", "model_options": {}, "loss": f"{file}:loss", "outputs": "logits"}
    hosts = [*start(1, replicas=2, config=mine), *start(2, config=mine)]
    for host in hosts:
        assert host.wait() == 0, host.run.log.read_text(errors="replace")[-3000:]
    return [host.run for host in hosts]


def test_two_hosts_train_what_one_does(ended: list[RunDirectory]) -> None:
    alone, first, _ = (all_of(run, events.EpochEnded) for run in ended)
    assert len(alone) == len(first) == 4
    for name in ("loss", "val_loss"):
        losses = [epoch.logs[name] for epoch in alone]
        assert [epoch.logs[name] for epoch in first] == pytest.approx(losses, rel=TOLERANCE)
        assert losses[-1] < 0.6 * losses[0], "it has to learn, or agreeing would prove little"
    assert [the(run, events.FitStarted).global_batch for run in ended[:2]] == [_GLOBAL_BATCH] * 2


def test_one_host_writes_the_run_and_the_other_refers_to_it(ended: list[RunDirectory]) -> None:
    _, first, second = ended
    ready = the(first, events.AcceleratorReady)
    assert (ready.strategy, ready.backend) == ("DataParallel", "jax")
    assert [(replica.process, replica.host) for replica in ready.replicas] == [(0, _NAME), (1, _NAME)]
    assert the(first, events.RunFinished).outcome == "completed"
    end = the(second, events.RunFinished)
    assert end.outcome == "completed"
    assert "host 0" in end.reason
    assert not all_of(second, (events.EpochEnded, events.Progress))  # type: ignore[arg-type]
    for run, is_there in ((first, True), (second, False)):
        assert [path.exists() for path in (run.model, run.history)] == [is_there] * 2
        assert run.summary.exists()  # lists read it
    step = all_of(first, events.EpochEnded)[-1].step
    assert [helpers.checkpoint_of(run)[1].step for run in (first, second)] == [step] * 2
    assert first.report.exists()


def test_logits_are_recognized_on_every_host(ended: list[RunDirectory]) -> None:
    for run in ended:
        assert any("logits" in notice.message for notice in all_of(run, events.Noticed))
        assert json.loads(run.inputs.read_text(encoding="utf-8"))["activation"] == "softmax"
    report = helpers.report_of(ended[1])
    last = all_of(ended[1], events.EpochEnded)[-1].logs
    assert report.accuracy == pytest.approx(last["val_accuracy"])
    assert report.not_numbers == 0


@pytest.mark.usefixtures("resumed_in_forks")
def test_hosts_resume_together(ended: list[RunDirectory], tmp_path: Path) -> None:
    _, *whole = ended
    copies = [RunDirectory(shutil.copytree(run.path, tmp_path / f"host-{run.path.parent.name}")) for run in whole]
    for copy in copies:
        helpers.checkpoint_of(copy)[0].unlink()
        lines = copy.journal.read_bytes().splitlines(keepends=True)
        copy.journal.write_bytes(b"".join(line for line in lines if b'"type":"RunFinished"' not in line))
    processes = [prepare_resumption(copy, trust=True).start() for copy in copies]
    for process, copy in zip(processes, copies, strict=True):
        assert process.wait(LIMIT_S) == 0, copy.log.read_text(errors="replace")[-3000:]
    expected = [epoch.logs["loss"] for epoch in all_of(whole[0], events.EpochEnded)]
    resumed = RunFollower(copies[0]).catch_up().state
    assert resumed.resumed[0].epoch == 3
    assert [epoch.logs["loss"] for epoch in resumed.epochs] == pytest.approx(expected, rel=1e-5)


def test_a_killed_host_ends_the_other_with_what_jax_says_and_a_checkpoint_stays(start: Start) -> None:
    hosts = start(2, config=_FOREVER | {"checkpoint": {"monitor": "auto"}})
    trains(hosts)
    assert hosts[0].process is not None
    found = psutil.Process(hosts[0].process.pid).net_connections("tcp")
    port = int(load_config(hosts[0].run.config).hosts.coordinator.rpartition(":")[2])
    (end,) = [one.laddr for one in found if one.status == psutil.CONN_LISTEN and one.laddr.port == port]
    assert end.ip.removeprefix("::ffff:") == LOOPBACK
    hosts[1].kill()
    assert hosts[0].wait() == 1
    failed = the(hosts[0].run, events.RunFailed)
    assert "Gloo" in failed.what
    assert "another host" in failed.remedy
    assert "checkpoints/last.keras" in failed.remedy
    assert events_of(hosts[0].run)[-1] == failed
    import keras

    model = keras.models.load_model(hosts[0].run.checkpoints / "last.keras", compile=False)
    assert model.output_shape == (None, 10)


def test_three_hosts_trace_the_same_steps_and_a_stop_at_any_stops_and_saves_all(start: Start) -> None:
    hosts = start(3, config=_FOREVER | {"profile": {"at": 30, "steps": 3}})
    trains(hosts)
    number = ask(hosts[1].run, events.Steering.PROFILE, "asked with tpu-console runs profile", "4")
    wait_until(lambda: all(len(all_of(host.run, events.Profiled)) == 2 for host in hosts), "traced twice", 120.0)
    first, *others = ([*all_of(host.run, events.Profiled)] for host in hosts)
    assert [(one.request, one.problem) for one in first] == [("", ""), (number, "")]
    assert first[0].step == 30 + 3
    for other in others:
        assert [(one.request, one.step, one.steps) for one in other] == [
            (one.request, one.step, one.steps) for one in first
        ]
        assert all(one.spent[events.Spent.COMPUTING] > 0 for one in other)
    ask(hosts[2].run, events.Steering.STOP, "asked with tpu-console stop")
    assert [host.wait() for host in hosts] == [0, 0, 0]
    why = f"asked with tpu-console stop, at host 2 ({_NAME})"
    ends = [the(host.run, events.RunFinished) for host in hosts]
    assert [end.outcome for end in ends] == ["stopped"] * 3
    assert [end.reason.partition("; ")[0] for end in ends] == [why] * 3
    assert the(hosts[0].run, events.StopRequested).reason == why
    assert [host.run.model.exists() for host in hosts] == [True, False, False]
    assert [replica.process for replica in the(hosts[0].run, events.AcceleratorReady).replicas] == [0, 1, 2]


def test_a_second_signal_ends_a_host_before_the_hosts_have_agreed_to_stop(start: Start) -> None:
    hosts = start(2, config=_FOREVER)
    trains(hosts)
    for number in (signal.SIGTERM, signal.SIGINT):
        hosts[1].send(number)
    assert hosts[1].wait() == 1
    assert the(hosts[1].run, events.RunFailed).what.startswith("SIG")


def test_a_host_that_never_disconnects_does_not_keep_the_others(start: Start) -> None:
    hosts = "import time; from tpu_console.engine.accelerators import hosts\n"
    before = {0: f"{hosts}hosts.SAVE_LIMIT_S = 1.0\n", 1: f"{hosts}hosts.Team.finish = lambda _: time.sleep(9e9)\n"}
    first, _ = start(2, config={"epochs": 1}, before=before)
    assert first.wait() == 0
    assert the(first.run, events.RunFinished).outcome == "completed"


def test_hosts_that_do_not_fit_together_are_refused(start: Start) -> None:
    (first,) = start(1, replicas=2, hosts={"count": 2, "index": 0})
    port = load_config(first.run.config).hosts.coordinator
    (other,) = start(1, replicas=2, config={"epochs": 5}, hosts={"count": 2, "index": 1, "coordinator": port})
    for host in (first, other):
        assert host.wait() == 1
        assert the(host.run, events.RunFailed).what.startswith(f"Host 1 ({_NAME}) has another")


_ALONE = """
import sys
from pathlib import Path
from tests.helpers import small_config
from tpu_console.engine.accelerators.hosts import Membership, join
from tpu_console.engine.errors import AcceleratorError
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run
run = create_run("alone", Path(sys.argv[1]))
try:
    join(Membership(2, 1, "127.0.0.1", 9, 0.5, ""), small_config(), Recorder(run, JournalWriter(run.journal)))
except AcceleratorError as error:
    print(error.what)
"""


def test_a_host_waits_for_the_others_until_a_limit_or_a_stop(start: Start, tmp_path: Path) -> None:
    (stopped,) = start(1, replicas=2, hosts={"count": 2, "index": 1})
    said = run_forked(_ALONE, str(tmp_path), cwd=ROOT, env={"KERAS_BACKEND": "jax", "TPU_CONSOLE_HOME": str(tmp_path)})
    assert "127.0.0.1:9" in said
    wait_until(lambda: any("waiting for 2 hosts" in phase.detail for phase in all_of(stopped.run, events.PhaseStarted)))
    ask(stopped.run, events.Steering.STOP, "asked with tpu-console stop")
    assert stopped.wait() == 0
    assert the(stopped.run, events.RunFinished).outcome == "stopped"


def test_hosts_read_different_shares_of_a_batch_and_augment_them_differently() -> None:
    import numpy as np
    import tensorflow as tf

    from tpu_console.engine.accelerators.framework import Share
    from tpu_console.engine.data.examples import Examples, Input, Signature, Task
    from tpu_console.engine.input.pipeline import build_pipeline

    image = np.zeros((8, 8, 1), np.float32)
    image[:3, :2] = 1.0  # so that no turn leaves it as it is
    # Every image is the same, and its label says which one it is.
    train = tf.data.Dataset.range(128).map(lambda number: (tf.constant(image), tf.cast(number, tf.int32)))
    signature = Signature(Task.CLASSES, {"image": Input((8, 8, 1))}, 128)
    examples = Examples(train=train, validation=None, train_count=128, validation_count=0, signature=signature)
    settings = config(2, augmentation={"rotation": 90.0, "placement": "pipeline"})

    def first_batch(index: int = 0, count: int = 1) -> tuple[Any, Any]:
        images, labels = next(iter(build_pipeline(examples, settings, 2, share=Share(index, count)).train))
        return images.numpy(), labels.numpy()

    (mine, my_labels), (theirs, their_labels) = first_batch(0, 2), first_batch(1, 2)
    assert len(my_labels) == len(their_labels) == _GLOBAL_BATCH // 2
    np.testing.assert_array_equal(np.stack([my_labels, their_labels], 1).ravel(), first_batch()[1])
    assert np.mean([np.array_equal(*pair) for pair in zip(mine, theirs, strict=True)]) < 0.1
    np.testing.assert_array_equal(mine, first_batch(0, 2)[0], err_msg="the same host draws the same again")
