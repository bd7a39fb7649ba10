"""Facts about each built-in dataset, as published; `engine.data.kinds.built_in` checks them."""

from functools import partial
from pathlib import Path

from msgspec import Struct

from ..storage.paths import keras_home


class CachedFile(Struct, frozen=True):
    """One file of a dataset in Keras's cache."""

    path: str  # where Keras expects it, relative to its home folder
    url: str  # the address it is downloaded from
    download_bytes: int  # size of the download; mirrors may differ

    @property
    def location(self) -> Path:
        """The file's full path on this machine."""
        return keras_home() / self.path


class DatasetInfo(Struct, frozen=True):
    """A built-in dataset."""

    name: str
    title: str
    train_examples: int  # training examples, before any limit
    validation_examples: int
    input_shape: tuple[int, ...]  # shape of one example, without the batch
    class_names: tuple[str, ...]  # in the order of their numbers
    licence: str  # the licence stated by its publisher
    files: tuple[CachedFile, ...] = ()  # files to download; empty if an installed package contains the dataset

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def download_bytes(self) -> int:
        """Bytes to download if nothing is cached."""
        return sum(file.download_bytes for file in self.files)

    def missing_files(self) -> tuple[CachedFile, ...]:
        """Return the files that are not in Keras's cache on this machine."""
        return tuple(file for file in self.files if not file.location.is_file())

    def by_hand(self) -> str:
        """Say how to do without a download, as a part of a sentence."""
        places = ", ".join(f"{file.url} as {file.location}" for file in self.missing_files())
        return f"save {places} yourself. Presets that work offline: {', '.join(OFFLINE_PRESETS)}"


_DIGITS = tuple("0123456789")
_GOOGLE_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
_FASHION = {
    "train-labels-idx1-ubyte.gz": 29_515,
    "train-images-idx3-ubyte.gz": 26_421_880,
    "t10k-labels-idx1-ubyte.gz": 5_148,
    "t10k-images-idx3-ubyte.gz": 4_422_102,
}

_CLOTHES = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"
_CIFAR_LICENCE = "none stated; its author asks to be cited (Krizhevsky 2009)"

# The fine labels, with the names in the archive's `meta` file.
_FINE_LABELS = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

_MNIST = partial(DatasetInfo, train_examples=60_000, validation_examples=10_000, input_shape=(28, 28, 1))
_CIFAR = partial(
    DatasetInfo, train_examples=50_000, validation_examples=10_000, input_shape=(32, 32, 3), licence=_CIFAR_LICENCE
)
_CIFAR10 = ("datasets/cifar-10-batches-py-target_archive", f"{_CIFAR_URL}cifar-10-python.tar.gz", 170_498_071)
_CIFAR100 = ("datasets/cifar-100-python-target_archive", f"{_CIFAR_URL}cifar-100-python.tar.gz", 169_001_437)

_BUILT_IN = (
    DatasetInfo(
        name="digits",
        title="1,797 handwritten digits, 8×8, installed with scikit-learn",
        train_examples=1437,
        validation_examples=360,
        input_shape=(8, 8, 1),
        class_names=_DIGITS,
        licence="CC BY 4.0 (Alpaydin and Kaynak, UCI)",
    ),
    _MNIST(
        name="mnist",
        title="70,000 handwritten digits, 28×28",
        class_names=_DIGITS,
        licence="CC BY-SA 3.0",
        files=(CachedFile("datasets/mnist.npz", f"{_GOOGLE_URL}mnist.npz", 11_490_434),),
    ),
    _MNIST(
        name="fashion-mnist",
        title="70,000 pictures of clothes, 28×28, in 10 classes",
        class_names=tuple(_CLOTHES.split(", ")),
        licence="MIT",
        files=tuple(CachedFile(f"datasets/fashion-mnist/{n}", _GOOGLE_URL + n, size) for n, size in _FASHION.items()),
    ),
    _CIFAR(
        name="cifar10",
        title="60,000 color photos, 32×32, in 10 classes",
        class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        files=(CachedFile(*_CIFAR10),),
    ),
    _CIFAR(
        name="cifar100",
        title="60,000 color photos, 32×32, in 100 classes",
        class_names=tuple(_FINE_LABELS.split()),
        files=(CachedFile(*_CIFAR100),),
    ),
)
DATASETS = {info.name: info for info in _BUILT_IN}

OFFLINE_PRESETS = ("digits-cnn",)  # built-in presets that need no download; errors of failed downloads suggest them


def is_user_reference(name: str) -> bool:
    """Return whether a dataset or model name refers to a function of the user; built-in names have no colon."""
    return ":" in name
