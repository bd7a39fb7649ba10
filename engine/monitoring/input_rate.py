"""Measures how long training waits for batches: whether the input or the accelerator limits a run.

Keras takes batches inside a compiled function, where Python cannot measure. So the last stage of the input pipeline
measures: TensorFlow's own ``LatencyStatsDataset``, compiled code that adds up how long the requests took. It costs
about 2 µs of CPU per batch; a stage of tf.data functions would cost about 100.

With one step per execution on one device, training stands still until the requested batch arrives. If batches are
requested ahead (several steps per execution, several replicas, JAX, a GPU), computation may continue: then the share is
near 0% while the input keeps up, and near 100% as soon as it does not. It still shows which of the two sets the pace.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from msgspec import Struct
from msgspec.structs import replace

from ..config.catalog import is_user_reference
from ..runs import events

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..input.pipeline import Pipeline
    from ..runs.recorder import Recorder


INPUT_SHARE = 0.20  # from this share of waiting on, the input limits a run: a fifth of its time or more is lost
ACCELERATOR_SHARE = 0.05  # up to this share, the accelerator does: a perfect input would save a twentieth at most
EVENT_EVERY_S = 2.0  # shortest time between two events within an epoch
_JUDGED_S = 1.0  # a shorter epoch is no reason for advice
_CPU, _TAG = "CPU:0", "wait"


class Taken(Struct, frozen=True):
    """Batches that were taken, and how long training waited for them."""

    batches: int = 0
    wait_s: float = 0.0  # seconds between asking for them and having them
    span_s: float = 0.0  # seconds in which training ran; 0 if that was not measured

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.batches + other.batches, self.wait_s + other.wait_s, self.span_s + other.span_s)

    def __sub__(self, other: Taken) -> Taken:
        return Taken(self.batches - other.batches, self.wait_s - other.wait_s, self.span_s - other.span_s)

    @property
    def share(self) -> float:
        """The share of the time in which training waited; a request that began before it may end in it."""
        return min(self.wait_s, self.span_s) / self.span_s if self.span_s > 0 else 0.0


class InputMeter:
    """Reads the counts of the stage at the end of a pipeline."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def read(self) -> Taken:
        """Return the counts since the dataset was made; safe in any thread, takes about 0.1 ms."""
        with tf.device(_CPU):
            encoded = tf.raw_ops.StatsAggregatorSummary(iterator=self.counts)
        for value in tf.compat.v1.Summary.FromString(encoded.numpy()).value:
            if value.tag == _TAG:
                return Taken(int(value.histo.num), value.histo.sum / 1e6)
        return Taken()


def metered(dataset: Any, meter: InputMeter | None = None) -> tuple[Any, InputMeter | None]:
    """Add a stage to the end of a dataset that counts batches and the time training waits for them; return its meter.

    The dataset must end in a prefetch, so that the time of a request is a wait and no work, and its options must switch
    tuning off, with which TensorFlow would put another prefetch behind the stage. The meter of an earlier dataset goes
    on counting with this one. The dataset stays as it is, without a meter, if a remote TPU's host reads it, or
    TensorFlow no longer has the stage.
    """
    names = [device.name for device in tf.config.list_logical_devices()]
    if any("/job:" in name and "/job:localhost" not in name for name in names):
        return dataset, None
    flat = tf.nest.flatten(dataset.element_spec)
    kept = {"output_types": [spec.dtype for spec in flat], "output_shapes": [spec.shape for spec in flat]}
    try:
        with tf.device(_CPU):
            name = f"input-{uuid.uuid4().hex}"
            counts = tf.raw_ops.StatsAggregatorHandle(shared_name=name) if meter is None else meter.counts
            variant = tf.data.experimental.to_variant(dataset)
            stage = tf.raw_ops.LatencyStatsDataset(input_dataset=variant, tag=_TAG, **kept)
            stage = tf.raw_ops.SetStatsAggregatorDataset(
                input_dataset=stage, stats_aggregator=counts, tag="", counter_prefix="", **kept
            )
            counted = tf.data.experimental.from_variant(stage, dataset.element_spec)
    except (AttributeError, tf.errors.OpError):
        return dataset, None
    return counted.with_options(dataset.options()), InputMeter(counts)


def limit_of(share: float) -> events.Bottleneck:
    """Return what limits a run that waited for batches for this share of its time."""
    if share >= INPUT_SHARE:
        return events.Bottleneck.INPUT
    return events.Bottleneck.ACCELERATOR if share <= ACCELERATOR_SHARE else events.Bottleneck.BALANCED


class InputRate:
    """Finds what limits a run, from the events of its recorder; compiling, validating and saving do not count.

    `remedy` returns advice for an epoch that the input limits; with `alerts`, an alert says so once, after the first.
    """

    def __init__(
        self,
        recorder: Recorder,
        meter: InputMeter,
        remedy: Callable[[int], str],
        clock: Callable[[], float] = time.monotonic,
        *,
        alerts: bool = True,
    ) -> None:
        self._recorder, self._meter, self._remedy, self._clock = recorder, meter, remedy, clock
        self._lock = threading.Lock()
        self._since: float | None = None  # when counting went on, while training runs
        self._base = self._window = self._epoch = Taken()
        self._emitted_at = 0.0
        self._advised = not alerts
        recorder.listen(self.on_event)

    def on_event(self, event: events.Event) -> None:
        """Follow an event of the run; called in the thread that writes it."""
        with self._lock:
            found = [*self._found(event)]
        for one in found:
            self._recorder.emit(one)

    def _found(self, event: events.Event) -> Iterator[events.InputMeasured | events.Alerted]:
        match event:
            case events.Progress() if self._since is not None and self._clock() - self._emitted_at >= EVENT_EVERY_S:
                self._count()
                yield from self._measured(event)
            case events.PhaseStarted(phase=events.Phase.TRAINING) if self._since is None:
                self._since, self._base = self._clock(), self._meter.read()
                self._emitted_at = max(self._emitted_at, self._since)
            case events.PhaseStarted(phase=phase) if phase != events.Phase.TRAINING:
                self._count()
                self._since = None
            case events.EpochEnded():
                self._count()
                yield from self._measured(event)
                epoch, self._epoch = self._epoch, Taken()
                is_judged = event.epoch > 1 and epoch.span_s >= _JUDGED_S
                if is_judged and not self._advised and limit_of(epoch.share) is events.Bottleneck.INPUT:
                    self._advised = True
                    what = f"training waited for data in {epoch.share:.0%} of epoch {event.epoch}."
                    text = f"The input limits the run: {what} {self._remedy(event.epoch)}"
                    yield events.Alerted(events.AlertKind.INPUT, text, event.epoch, event.step)

    def _count(self) -> None:
        if self._since is None:
            return
        now, taken = self._clock(), self._meter.read()
        part = replace(taken - self._base, span_s=now - self._since)
        self._window, self._epoch = self._window + part, self._epoch + part
        self._since, self._base = now, taken

    def _measured(self, event: events.Progress | events.EpochEnded) -> Iterator[events.InputMeasured]:
        window = self._window
        if not window.batches or window.span_s <= 0:
            return
        self._window = Taken()
        self._emitted_at = self._clock()
        limit = limit_of(window.share)
        yield events.InputMeasured(
            epoch=event.epoch,
            step=event.step,
            elapsed_s=event.elapsed_s,
            batches=window.batches,
            wait_s=min(window.wait_s, window.span_s),
            span_s=window.span_s,
            limit=limit,
            remedy=self._remedy(event.epoch) if limit is events.Bottleneck.INPUT else "",
        )


def input_remedy(config: RunConfig, data: Pipeline, accelerator: str, cores: float, epoch: int) -> str:
    """Return what helps most against an input that limited an epoch, counted from 1, on a host with so many cores."""
    if data.cache.kind == "off":
        again = "Examples are read and decoded again in every epoch: "
        if config.data.cache == "off":
            return f"{again}data.cache=auto caches them in the first one."
        if is_user_reference(config.dataset):
            endless = f"if they have no end, map with num_parallel_calls=tf.data.AUTOTUNE in {config.dataset}."
            return f"{again}data.cache=memory or disk caches them; {endless}"
        shards = "`tpu-console tfrecord` packs files into shards, which are faster to read."
        return f"{again}a smaller data.options.image_size, or more memory or disk, lets them be cached; {shards}"
    if epoch == 1:
        return "The first epoch reads, decodes and caches the examples; later epochs read the cache."
    if config.augmentation.is_active and not data.placement.in_model:
        if accelerator == "gpu" and not config.augmentation.without_layer:
            return "Augmentation runs on the host: augmentation.placement=model moves it to the GPU."
        return f"Augmentation runs on the host's {cores:g} cores: less of it, smaller images or more cores help."
    if data.cache.kind == "disk":
        return "Cached examples are read from a disk: data.cache=memory, or TPU_CONSOLE_HOME on a faster disk, helps."
    fewer = "fewer bytes per example help, such as images as uint8 with a Rescaling layer in the model."
    return f"Batches are prepared on the host's {cores:g} cores: more cores or {fewer}"
