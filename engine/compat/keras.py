"""Private calls of Keras, checked on Keras 3.15.1."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def build_from_shapes(model: Any, batch: Any) -> None:
    """Build the metrics, loss and optimizer of a compiled model from the shapes and types of a batch.

    Private: `Trainer._symbolic_build`, which `fit` calls itself; Keras has no public call for it. Without it, `fit` on
    JAX or under a strategy takes its shapes from a first batch and then starts the dataset again. That fills the
    shuffle buffer twice and changes the order of the examples. Does nothing on a Keras that has no such function.
    """
    build = getattr(model, "_symbolic_build", None)
    if build is not None:
        build(data_batch=batch)


def skip_build_in_fit(model: Any) -> None:
    """Keep `fit` from building a model that is already built.

    Private: `TensorFlowTrainer._maybe_symbolic_build`. Under a strategy of TensorFlow it takes a batch from the dataset
    even if nothing is left to build, with the effects that `build_from_shapes` describes.
    """
    if hasattr(model, "_maybe_symbolic_build"):
        model._maybe_symbolic_build = lambda *_args, **_named: None  # noqa: SLF001


class ForBothKeras:
    """A callback that follows training and validation also under tf_keras, which asks callbacks for private methods."""

    _supports_tf_logs = False

    def _implements_train_batch_hooks(self) -> bool:
        return True

    _implements_test_batch_hooks = _implements_train_batch_hooks

    def _implements_predict_batch_hooks(self) -> bool:
        return False


def rename_weight(weight: Any, path: str) -> None:
    """Change the path of a weight, from which an optimizer makes the names of its own variables.

    Private: `KerasVariable._path`; the public `path` cannot be set. Without it, the weights of a SavedModel in
    `keras.layers.TFSMLayer` cannot be trained under a strategy: their names contain colons, which TensorFlow refuses
    when an optimizer makes its variables inside a `tf.function`.
    """
    weight._path = path  # noqa: SLF001


def producer_of(tensor: Any) -> Any:
    """Return the layer or operation that makes a symbolic tensor.

    Private: `KerasTensor._keras_history`, as in Keras's own functional models. Without it, the last layer of a
    functional model is unknown.
    """
    return getattr(getattr(tensor, "_keras_history", None), "operation", None)


def flat_layers(model: Any) -> list[Any]:
    """Return every layer in a model, also those that a layer keeps to itself, such as an attention's projections.

    Private: `Layer._flatten_layers`, as Keras's own `Layer.trainable` uses it; the public `layers` lists only a model's
    own. Without it, the preflight would leave them out when it tries LoRA.
    """
    return list(model._flatten_layers(include_self=False))  # noqa: SLF001


def attention_projection(layer: Any, name: str) -> Any:
    """Return the projection ``query``, ``key``, ``value`` or ``output`` of an attention layer, or None.

    Private: `_query_dense`, `_key_dense`, `_value_dense` and `_output_dense` of `GroupedQueryAttention`, which has no
    public names for them; `MultiHeadAttention` has. Without it, the preflight leaves out their matrix products.
    """
    return getattr(layer, f"_{name}_dense", None)


@contextmanager
def without_downloads() -> Iterator[None]:
    """Keep a block from downloading and reading weights.

    Private: `keras.src.utils.file_utils`. Models that Keras brings call `get_file` there, so that replacing the public
    `keras.utils.get_file` does not reach them. Without it, a preflight would download weights that it does not need.
    """
    import keras
    from keras.src.utils import file_utils

    places: tuple[tuple[Any, str], ...] = (
        (file_utils, "get_file"),
        (keras.utils, "get_file"),
        (keras.Model, "load_weights"),
        (keras.Model, "set_weights"),
        (keras.layers.Layer, "set_weights"),
    )
    before = [getattr(place, name) for place, name in places]
    for place, name in places:
        setattr(place, name, lambda *_arguments, **_options: "")
    try:
        yield
    finally:
        for (place, name), value in zip(places, before, strict=True):
            setattr(place, name, value)


@contextmanager
def creating_variables(create: Callable[..., None]) -> Iterator[None]:
    """Let a function create Keras's variables during a block; it gets Keras's constructor, and what that would get.

    Patched: `keras.Variable.__init__`. Keras has no public way to see a variable that its model does not own, or how
    large a weight is before it is made.
    """
    import keras

    constructor = keras.Variable.__init__
    keras.Variable.__init__ = lambda *arguments, **options: create(constructor, *arguments, **options)
    try:
        yield
    finally:
        keras.Variable.__init__ = constructor


def automatic_name(class_name: str) -> str:
    """Return the name that Keras gives to an object of a class by itself, such as ``mean_squared_error``.

    Private: `keras.src.utils.naming.to_snake_case`. Without it, exported code would repeat names that say nothing.
    """
    from keras.src.utils.naming import to_snake_case

    return str(to_snake_case(class_name))


def compiled_metrics(model: Any) -> dict[str, Any]:
    """Return the metrics that a compiled model reports by their names in the logs, as they were given to `compile`.

    Private: `CompileMetrics._user_metrics` and `_user_weighted_metrics`. The public `CompileMetrics.metrics` is empty
    until the first training step, and does not say to which output a metric belongs. Without it, what is known of a
    metric is what its name says.
    """
    outputs = list(getattr(model, "output_names", ()))
    found: dict[str, Any] = {}
    for metric in model.metrics:
        given = (getattr(metric, "_user_metrics", metric), getattr(metric, "_user_weighted_metrics", None))
        found |= dict(pair for part in given for pair in _named_metrics(part, outputs))
    return found


def _named_metrics(given: Any, outputs: list[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(given, dict):
        for output, part in given.items():
            yield from _named_metrics(part, [], f"{output}_" * (len(outputs) > 1))
    elif isinstance(given, list | tuple):
        of_outputs = len(given) == len(outputs) > 1
        for place, part in enumerate(given):
            yield from _named_metrics(part, [], f"{outputs[place]}_" if of_outputs else prefix)
    elif given is not None:
        name = given if isinstance(given, str) else getattr(given, "name", "") or getattr(given, "__name__", "")
        yield f"{prefix}{name}", given


def direction_of(metric: Any) -> str:
    """Return ``up`` or ``down`` for a metric that is better when higher or lower; empty if its class does not say.

    Private: `Metric._direction`, by which Keras's own `EarlyStopping` decides; there is no public name. Without it, the
    direction is what the metric's name says.
    """
    return getattr(metric, "_direction", "")
