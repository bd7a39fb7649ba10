"""Models to compare: all of `keras.applications` at their default size, and some of other kinds."""

# mypy: ignore-errors
import keras
from keras import layers, ops

SIZES = {
    **dict.fromkeys(("Xception", "InceptionV3", "InceptionResNetV2"), 299),
    **dict.fromkeys(("NASNetLarge",), 331),
    **{f"EfficientNetB{n}": size for n, size in enumerate((224, 240, 260, 300, 380, 456, 528, 600))},
    **{f"EfficientNetV2B{n}": size for n, size in enumerate((224, 240, 260, 300))},
    "EfficientNetV2S": 384,
    "EfficientNetV2M": 480,
    "EfficientNetV2L": 480,
}
"""Default sides of images that are not 224."""

APPLICATIONS = sorted(
    name for name in dir(keras.applications) if name[0].isupper() and callable(getattr(keras.applications, name))
)
OTHERS = {
    "mlp": (784,),
    "autoencoder": (32, 32, 3),
    "unet": (128, 128, 3),
    "conv1d": (1000, 8),
    "conv3d": (16, 32, 32, 1),
    "lstm": (32, 96),
    "bidirectional_gru": (64, 32),
    "attention": (128, 64),
    "separable": (64, 64, 3),
    "mixture": (256,),
    "digits": (8, 8, 1),  # as the preset digits-cnn
}
"""The other models, with the shape of an example."""


def shape_of(name: str) -> tuple[int, ...]:
    """Return the shape of an example of a model."""
    size = SIZES.get(name, 224)
    return OTHERS.get(name) or (size, size, 3)


def build(input_shape, classes, name="mlp"):
    """Return the model with a name."""
    if name not in OTHERS:
        return getattr(keras.applications, name)(weights=None, input_shape=tuple(input_shape), classes=classes)
    x = keras.Input(input_shape)
    return keras.Model(x, layers.Dense(classes, activation="softmax", dtype="float32")(globals()[f"_{name}"](x)))


def _mlp(x):
    for units in (1024, 512, 256):
        x = layers.Dropout(0.2)(layers.Dense(units, activation="relu")(x))
    return x


def _autoencoder(x):
    y = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(x)
    y = layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")(y)
    y = layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu")(y)
    return layers.Flatten()(layers.Conv2DTranspose(3, 3, strides=2, padding="same")(y))


def _unet(x):
    skips = []
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    for filters, skip in zip((64, 32), reversed(skips), strict=True):
        x = layers.Concatenate()([layers.UpSampling2D()(x), skip])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return layers.GlobalAveragePooling2D()(x)


def _conv1d(x):
    for filters in (32, 64, 128):
        x = layers.MaxPooling1D()(layers.BatchNormalization()(layers.Conv1D(filters, 9, padding="same")(x)))
    return layers.GlobalMaxPooling1D()(x)


def _conv3d(x):
    for filters in (16, 32):
        x = layers.MaxPooling3D()(layers.Conv3D(filters, 3, padding="same", activation="relu")(x))
    return layers.Flatten()(x)


def _lstm(x):
    return layers.LSTM(256)(x)


def _bidirectional_gru(x):
    return layers.Bidirectional(layers.GRU(128))(x)


def _attention(x):
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, activation="gelu")(x)))
    return layers.GlobalAveragePooling1D()(x)


def _separable(x):
    for filters in (64, 128, 256):
        x = layers.SeparableConv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    return layers.GlobalAveragePooling2D()(x)


def _mixture(x):
    gate = layers.Dense(4, activation="softmax")(x)
    experts = [layers.Dense(512, activation="relu")(x) for _ in range(4)]
    return layers.Lambda(lambda parts: ops.sum(ops.stack(parts[1:], 1) * parts[0][..., None], 1), output_shape=(512,))(
        [gate, *experts]
    )


def _digits(x):
    for filters in (32, 64):
        x = layers.ReLU()(layers.MaxPooling2D(2)(layers.Conv2D(filters, 3, padding="same")(x)))
    return layers.Dropout(0.3)(layers.Dense(64, activation="relu")(layers.Flatten()(x)))
