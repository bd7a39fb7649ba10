import pytest

from tests.helpers import small_config
from tpu_console.engine.config.values import AcceleratorKind, RequestedAccelerator, budget_seconds, parse_accelerator
from tpu_console.engine.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", RequestedAccelerator(AcceleratorKind.AUTO)),
        ("cpu", RequestedAccelerator(AcceleratorKind.CPU)),
        ("gpu", RequestedAccelerator(AcceleratorKind.GPU)),
        ("tpu", RequestedAccelerator(AcceleratorKind.TPU)),
        ("tpu:10.0.0.2:8470", RequestedAccelerator(AcceleratorKind.TPU, address="10.0.0.2:8470")),
        ("sim:8", RequestedAccelerator(AcceleratorKind.SIMULATED, simulated=8)),
    ],
)
def test_an_accelerator_is_parsed_into_kind_address_and_replicas(text: str, expected: RequestedAccelerator) -> None:
    assert small_config(accelerator=text).requested == parse_accelerator(text) == expected
    assert expected.is_tpu == text.startswith("tpu")


def test_other_texts_are_not_accelerators() -> None:
    for text in ("", "tpus", "tpu:", "tpu:a b", "cpu:1", "sim", "sim:0", "sim:08", "sim:100", "8"):
        with pytest.raises(ValueError, match="is not an accelerator"):
            parse_accelerator(text)


def test_steps_follow_from_the_global_batch_unless_they_are_set() -> None:
    config = small_config(batch_size=16)
    assert (config.steps_in_epoch(1000, 8), config.steps_in_epoch(None, 8)) == (7, None)
    assert config.model_copy(update={"steps_per_epoch": 50}).steps_in_epoch(None, 8) == 50


def test_only_tensorflow_makes_the_step_of_a_hub_model_or_when_asked_to() -> None:
    assert small_config().tpu_backend == "jax"
    assert small_config(backend="tensorflow").tpu_backend == "tensorflow"
    assert small_config(model="hub", model_options={"path": "here"}).tpu_backend == "tensorflow"


def test_a_budget_is_a_duration_or_a_service() -> None:
    known = {"": None, "8h 30m": 30_600, "90m": 5_400, "45s": 45, "1d": 86_400, "colab": 43_200, "kaggle": 43_200}
    for budget, seconds in known.items():
        assert budget_seconds(small_config(budget=budget).budget) == seconds
    assert budget_seconds("kaggle", on_tpu=True) == 32_400
    for budget in ("0s", "soon", "8", "30m8h", "-1h", "1h1h", "9" * 40 + "h", "8h\n", "kagle"):
        with pytest.raises(ConfigError, match="is not a duration"):
            small_config(budget=budget)


def test_a_mirror_is_a_folder_or_a_bucket_and_so_no_secret_can_be_in_it() -> None:
    for mirror in ("", "/mnt/drive/My runs", "~/runs", "gs://bucket", "gs://my-bucket/a/b_c.d/"):
        assert small_config(mirror=mirror).mirror == mirror
    wrong = ("runs", "./runs", "~you/runs", "s3://bucket/runs", "gs://", "gs://user:secret@bucket/runs", " /mnt")
    for mirror in (*wrong, "gs://b/r?token=1", "file:///mnt"):
        with pytest.raises(ConfigError, match="must be a bucket"):
            small_config(mirror=mirror)
