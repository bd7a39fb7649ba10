"""What is said of models that cannot be compiled: the layer, the line of the user's code, what to write instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import run_forked, small_config
from tpu_console.engine.preflight.compiling import PREFLIGHT
from tpu_console.engine.preflight.result import Outcome, Verdict, from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

pytest.importorskip("libtpu", reason="the extra [tpu] is not installed")
pytestmark = pytest.mark.slow

FILE = Path(__file__).parent / "cases" / "refused.py"
REACH_VERDICTS = """
import json, sys
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.preflight.cache import TpuChoice
from tpu_console.engine.preflight.verdict import reach_verdict
from tpu_console.engine.preflight.topologies import find_topology
found = {}
for name, values in json.loads(sys.argv[1]).items():
    found[name] = reach_verdict(TpuChoice(parse_config(values), find_topology("v5e-1")), lambda *_: None).as_dict()
print(json.dumps(found))
"""

DECIDES = "makes a Python decision"
NUMBER = "needs the values of a batch as Python or NumPy numbers"
CHANGES = "needs a shape or size that depends on the values of a batch"
CASES = {
    "function": ("sided", DECIDES, "if ops.mean(x) > 0:", "keras.ops.cond"),
    "subclass": ("narrow", DECIDES, "while ops.max(y) > 1:", "keras.ops.fori_loop"),
    "numpy": ("sorted", NUMBER, "np.sort(np.asarray(x))", "keras.ops instead of np"),
    "mask": ("masked", CHANGES, "return y[y > 0]", "keras.ops.where(mask, x, 0) instead of x[mask]"),
    "unique": ("unique", CHANGES, "jnp.unique(x)[:10]", "a fixed size for nonzero, unique"),
    "largest": ("largest", CHANGES, "ops.top_k(x, count)", "the largest size that can occur"),
    "cut": ("cut", CHANGES, "return x[:, :length]", "instead of x[:, :k]"),
    "counted": ("counted", NUMBER, "for _ in range(int(ops.sum(x))):", "instead of range(n) keras.ops.fori_loop"),
    "rows": ("rows", "uses the batch size", "for row in x", "keras.ops.vectorized_map"),
    "flow": ("flow", "calls TensorFlow", "tf.nn.relu(x)", "with keras.ops"),
    "spelled": ("spelled", "with TensorFlow", "tf.strings.as_string(x)", "dataset.map(lambda x, y: (prepare(x), y))"),
    "noisy": ("noisy", "without a seed generator", "keras.random.normal", "give the random function seed"),
    "assigns": ("assigns", "writes into a part", "x[:, 0] = 0", "keras.ops.slice_update"),
    "plus": ("plus", "incompatible shapes for broadcasting: (batch, 16), (3, 3)", "return x + np.zeros", "Fix it"),
    "looped": ("", "has a loop whose number", "ops.while_loop(", "keras.ops.fori_loop(0, LARGEST, body, x)"),
    "either": ("either", "the same shapes", "ops.cond(", "Give both branches"),
    "words": ("words", "strings or 64-bit numbers", "convert_to_tensor", "input pipeline"),
}
WHOLE = {
    "trainer": ("has its own train_step(self, data), as for TensorFlow", "Override compute_loss instead"),
    "other_shape": ("built for examples of shape (28, 28, 1), and the dataset's have (8, 8, 1)", "input_shape"),
    "plain": ("The loss 'loss' makes a Python decision", "keras.ops.where"),
    "measuring": (f"The metric 'measured' {NUMBER}", "no float(), int(), item() or print"),
    "several": ("takes 2 inputs, and the dataset gives one", "Build it with one keras.Input"),
    "two": ("gives 2 outputs (kind, price)", "Return a label for each output"),
}
"""What is wrong with the whole model or its loss, and not with a layer."""
OWN_LOSS: dict[str, dict[str, Any]] = {
    "plain": {"loss": f"{FILE}:loss"},
    "measuring": {"metrics": [f"{FILE}:measured"]},
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    """The verdict on each case, from one process: each is refused before the compiler runs."""
    configs = {
        name: small_config(model=f"{FILE}:{name}", model_options={}, **OWN_LOSS.get(name, {})).model_dump(mode="json")
        for name in (*CASES, *WHOLE, "cropped", "created")
    }
    said = run_forked(REACH_VERDICTS, json.dumps(configs), cwd=tmp_path_factory.mktemp("home"), env=PREFLIGHT)
    return {name: from_dict(values) for name, values in json.loads(said.splitlines()[-1]).items()}


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_shows_the_line_and_what_to_write_instead(verdicts: Mapping[str, Verdict], name: str) -> None:
    layer, text, line, remedy = CASES[name]
    verdict = verdicts[name]
    assert verdict.outcome is Outcome.DOES_NOT_COMPILE, verdict.reason
    (finding,) = verdict.findings
    assert (finding.severity, finding.layer) == ("error", layer)
    assert (f"The layer '{layer}'" if layer else "The model") in verdict.reason
    assert text in verdict.reason
    (place,) = finding.evidence
    assert place.startswith(f"File {FILE}, line ")
    assert line in place
    assert remedy in finding.remedy
    # Neither Keras's wrappers nor their own failures are shown.
    assert not [word for word in ("_error_repr", "Arguments received", "automatically infer") if word in finding.text]
    assert verdict.compiler_says == ""


@pytest.mark.parametrize("name", WHOLE)
def test_a_refusal_of_the_whole_model_says_what_to_write_instead(verdicts: Mapping[str, Verdict], name: str) -> None:
    text, remedy = WHOLE[name]
    verdict = verdicts[name]
    assert verdict.outcome is Outcome.DOES_NOT_COMPILE, verdict.reason
    (finding,) = verdict.findings
    assert (finding.severity, finding.layer) == ("error", "")
    assert text in verdict.reason
    assert remedy in finding.remedy


def test_a_layer_of_keras_that_augments_is_moved_to_the_pipeline(verdicts: Mapping[str, Verdict]) -> None:
    (finding,) = verdicts["cropped"].findings
    assert (finding.layer, finding.key) == ("crops", "augmentation.crop")
    assert "Remove the layer from the model and set augmentation.crop instead" in finding.remedy


def test_a_layer_that_is_created_in_call_is_refused_with_its_line(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["created"]
    assert verdict.outcome is Outcome.DOES_NOT_COMPILE, verdict.reason
    (finding,) = verdict.findings
    assert "is not part of the model" in finding.text
    assert f"File {FILE}, line " in finding.text
    assert "return layers.Dense(16)(x)" in finding.text
