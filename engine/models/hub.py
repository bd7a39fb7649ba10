"""A SavedModel of TensorFlow Hub or Kaggle Models as feature extractor.

Keras 3 refuses `hub.KerasLayer`. Instead the function that is used of the SavedModel is saved anew, in the run's own
folder and with endpoints whose names are known, and `keras.layers.TFSMLayer` makes a layer of that copy, variables
and all. So the run's ``model.keras`` needs neither this package nor the original, only the copy beside it, which it
finds by its full path. It is read by ``keras.models.load_model("model.keras", safe_mode=False, compile=False)``: Keras
asks for the former because a SavedModel holds operations of its publisher's choice, and trips without the latter over
the names of the copy's variables where they were trained.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from ..compat.keras import rename_weight
from ..config.model_options import HubOptions
from ..data.places import is_remote, locate
from ..errors import ConsoleError, DataError, one_line
from ..storage.disk_space import disk_full
from ..storage.files import is_disk_full, sync
from .basic import classifier, image_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config.run_config import RunConfig
    from ..data.examples import Signature

# Without a name of one's own, the first of these that there is.
_USUAL_SIGNATURES = ("serving_default", "serve", "default")
_USUAL_OUTPUTS = ("default", "feature_vector", "output_0", "pooled_output")
_SCALES = {"unit": (1.0, 0.0), "signed": (2.0, -1.0), "raw": (255.0, 0.0)}


def hub(config: RunConfig, signature: Signature, folder: Path | None) -> Any:
    """Build `hub`.

    Args:
        config: The configuration.
        signature: What is known of the examples.
        folder: Where the copy of the SavedModel goes, for as long as the model is to be read; None for a temporary one.

    Raises:
        DataError: There is no such SavedModel, or it does not turn these images into features.
        ConsoleError: The copy cannot be written.
    """
    options = HubOptions.model_validate(config.model_options)
    shape = image_shape("hub", signature)
    inputs = keras.Input(shape)
    scale, offset = _SCALES[options.image_scale]
    scale /= 1.0 if config.data.pixels == "unit" else 255.0
    pixels = keras.layers.Rescaling(scale, offset, dtype="float32")(inputs)
    features = _feature_layer(options, shape, folder or Path(tempfile.mkdtemp(prefix="hub-")))(pixels)
    if len(features.shape) == 4:
        features = keras.layers.GlobalAveragePooling2D()(features)
    for units in options.hidden:
        features = keras.layers.Dense(units, activation="relu")(features)
    if options.dropout:
        features = keras.layers.Dropout(options.dropout)(features)
    return keras.Model(inputs, classifier(signature.classes)(features), name="hub")


def _feature_layer(options: HubOptions, shape: tuple[int | None, ...], folder: Path) -> Any:
    source = load_saved_model(options.path)
    call = _feature_function(source, options)
    images = tf.TensorSpec((None, *shape), tf.float32, name="images")
    copy = tf.Module()
    copy.source = source  # it holds the variables
    copy.serve = _endpoint(call, images, options.path, training=False)
    if options.trainable:
        copy.train = _endpoint(call, images, options.path, training=True)
    try:
        tf.saved_model.save(copy, str(folder))
        for file in folder.rglob("*"):
            sync(file)  # the saved model does not load without it
    except (OSError, tf.errors.OpError) as error:
        if is_disk_full(error):
            raise disk_full(folder, "a copy of the SavedModel") from error
        raise ConsoleError(f"The SavedModel cannot be copied to {folder}.", why=one_line(error)) from error
    layer = keras.layers.TFSMLayer(
        str(folder),
        call_endpoint="serve",
        call_training_endpoint="train" if options.trainable else None,
        trainable=options.trainable,
        name="features",
        dtype="float32",
    )
    for weight in (weight for weight in layer.weights if isinstance(weight, keras.Variable)):
        # Optimizers name their own variables after it, and TensorFlow takes no colon in a name.
        rename_weight(weight, weight.path.replace(":", "_"))
    if options.trainable and not layer.trainable_weights:
        raise DataError(
            f"{options.path} has no weights that can be trained.", remedy="Set model_options.trainable=false."
        )
    return layer


def load_saved_model(path: str) -> Any:
    """Load a SavedModel from a folder, a ``gs://`` path, or an address of TensorFlow Hub or Kaggle Models.

    Raises:
        DataError: There is none, or it cannot be fetched.
    """
    import tensorflow_hub

    place = locate(path)
    options = None
    if isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy):
        # A TPU on another machine cannot read this one's files: let this one read, or Google Storage serve it whole.
        os.environ.setdefault("TFHUB_MODEL_LOAD_FORMAT", "UNCOMPRESSED")
        options = tf.saved_model.LoadOptions(experimental_io_device="/job:localhost")
    try:
        return tensorflow_hub.load(place, options=options)
    except Exception as error:  # whatever its resolvers and TensorFlow's file systems raise
        if is_remote(path):
            raise DataError(
                f"The SavedModel {path} could not be fetched.",
                why=one_line(error),
                remedy=(
                    "Check the address and the connection (on Kaggle: switch the notebook's internet on), or download "
                    "and unpack it by hand and set model_options.path to its folder."
                ),
            ) from error
        raise DataError(
            f"{place} is not a SavedModel that TensorFlow can read.",
            why=one_line(error),
            remedy="Set model_options.path to the folder that holds saved_model.pb and variables/.",
        ) from error


def _feature_function(source: Any, options: HubOptions) -> Callable[..., Any]:
    """Choose what to call of a SavedModel: itself, or one of its signatures.

    Raises:
        DataError: It can neither be called nor has it a signature for one tensor.
    """
    if callable(source) and not options.signature:
        return lambda images, **settings: _single_output(source(images, **settings), options.path)
    signatures = dict(getattr(source, "signatures", None) or {})
    if not signatures:
        raise DataError(
            f"The SavedModel {options.path} can neither be called nor has it a signature.",
            remedy="Export one with a signature, such as by model.export('folder') of Keras.",
        )
    usual = [name for name in _USUAL_SIGNATURES if name in signatures]
    name = options.signature or next(iter(usual or signatures))
    names = ", ".join(sorted(signatures))
    if name not in signatures or not (options.signature or usual or len(signatures) == 1):
        what = f"no signature '{name}'" if options.signature else "several signatures, none under a usual name"
        raise DataError(
            f"The SavedModel {options.path} has {what}; it has: {names}.",
            remedy="Set model_options.signature to one of them.",
        )
    function = signatures[name]
    inputs = list(function.structured_input_signature[1])
    if len(inputs) != 1:
        raise DataError(
            f"The signature '{name}' of {options.path} takes {len(inputs)} inputs, not one batch of images.",
            why=f"They are {', '.join(inputs)}." if inputs else "",
            remedy=f"Set model_options.signature to another one; there are: {names}.",
        )
    return lambda images: _single_output(function(**{inputs[0]: images}), options.path)


def _single_output(outputs: Any, path: str) -> Any:
    """Take the features of what a function returned: a tensor, or several by name or in order."""
    if isinstance(outputs, dict):
        names = [name for name in _USUAL_OUTPUTS if name in outputs] or list(outputs)
        if len(outputs) > 1 and names[0] not in _USUAL_OUTPUTS:
            raise DataError(
                f"The SavedModel {path} returns several things, none under a usual name: {', '.join(sorted(outputs))}.",
                remedy="Set model_options.signature to one that returns the features alone.",
            )
        outputs = outputs[names[0]]
    if isinstance(outputs, (list, tuple)):
        outputs = outputs[0]
    return tf.cast(outputs, tf.float32)


def _endpoint(call: Callable[..., Any], images: Any, path: str, *, training: bool) -> Any:
    """Trace the function for images of this size, told whether it trains where it wants to know that.

    Raises:
        DataError: It does not take such images, or returns no features of them.
    """
    problem: Exception | None = None
    for settings in ({"training": training}, {}):
        endpoint = tf.function(
            lambda x, settings=settings: call(x, **settings), input_signature=[images], autograph=False
        )
        try:
            features = endpoint.get_concrete_function().structured_outputs
        except DataError:
            raise
        except Exception as error:  # noqa: BLE001  the function is anybody's
            problem = error
            continue
        if features.shape.rank not in {2, 4} or features.shape[-1] is None:
            raise DataError(f"The SavedModel {path} returns {features.shape} and not one row of features an image.")
        return endpoint
    size = "×".join(str(side) for side in images.shape[1:])
    raise DataError(
        f"The SavedModel {path} does not take images of {size}.",
        why=one_line(problem) if problem else "",
        remedy="Set data.options.image_size to the size that its publisher names.",
    ) from problem
