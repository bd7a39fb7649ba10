"""Private calls of TensorFlow, checked on TensorFlow 2.21.0."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tensorflow as tf


def switch_off_tuning_of_device_iterators() -> None:
    """Switch off the tuning thread of the iterators that give each replica its part of a batch.

    Private: `multi_device_iterator_ops._create_device_dataset`. The thread sleeps for up to a minute at a time, and the
    end of an iterator waits for it: with 4 replicas, `fit` returned minutes late. A dataset's own options
    (`engine.input.pipeline`) do not reach these iterators, and no public setting does. Does nothing on a TensorFlow
    that has no such function.
    """
    from tensorflow.python.data.ops import multi_device_iterator_ops as iterators

    make: Callable[..., Any] | None = getattr(iterators, "_create_device_dataset", None)
    if make is None:
        return
    options = tf.data.Options()
    options.autotune.enabled = False
    iterators._create_device_dataset = lambda *args, **named: make(*args, **named).with_options(options)  # noqa: SLF001


def wait_for_replica_threads() -> None:
    """Go on as soon as the threads that trace the replicas' step have ended.

    Private: `mirrored_run.coordinator`. `Coordinator.join` looks at its threads once a second, so that every function
    that a `MirroredStrategy` traces may wait for a second: a run on two replicas took 8 s instead of 4.
    """
    from tensorflow.python.distribute import mirrored_run

    class PromptCoordinator(mirrored_run.coordinator.Coordinator):  # type: ignore[misc]  # TensorFlow is untyped
        def join(self, threads: Any = None, **given: Any) -> None:
            for thread in threads or ():
                while thread.is_alive() and not self.should_stop():
                    thread.join(0.05)
            super().join(threads, **given)

    mirrored_run.coordinator = SimpleNamespace(Coordinator=PromptCoordinator)


def trace_messages() -> tuple[Any, Any]:
    """Return the modules with the messages ``XSpace`` of a trace and ``HloProto`` of a program in it.

    Private: `tensorflow.tsl.profiler.protobuf` and `tensorflow.compiler.xla.service`. JAX writes the same messages, and
    its own reader, `jax.profiler.ProfileData`, does not give the programs, which name the layers.
    """
    from tensorflow.compiler.xla.service import hlo_pb2
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    return xplane_pb2, hlo_pb2


def yields_batches(dataset: Any) -> bool | None:
    """Return whether the elements of a `tf.data.Dataset` are batches; None if that is unknown, as for a generator.

    Private: the names of the classes of datasets, and `Dataset._inputs`. Batches of a fixed size have the same
    specification as single examples, and nothing public tells them apart.
    """
    kind = type(dataset).__name__.lower()
    if "unbatch" in kind or "tensorslice" in kind:
        return False
    if "batch" in kind:
        return True
    keeps_elements = "zip" in kind or "map" in kind.replace("flatmap", "")
    if not keeps_elements and not any("UnchangedStructure" in base.__name__ for base in type(dataset).__mro__):
        return None
    found = {yields_batches(one) for one in dataset._inputs()}  # noqa: SLF001
    return found.pop() if len(found) == 1 else None
