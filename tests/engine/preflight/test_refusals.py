"""What is said of models that cannot be compiled: the layer, the line of the user's code, what to write instead."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.preflight.reached import verdicts_of
from tests.helpers import small_config
from tests.made_verdicts import UNKNOWN
from tpu_console.engine.preflight.compile import RefusedError
from tpu_console.engine.preflight.result import Outcome, Verdict
from tpu_console.engine.preflight.verdict import refused

pytest.importorskip("libtpu", reason="the extra [tpu] is not installed")
pytestmark = pytest.mark.slow

FILE = Path(__file__).parent / "cases" / "refused.py"
DECIDES = "makes a Python decision"
NUMBER = "needs the values of a batch as Python or NumPy numbers"
CHANGES = "needs a shape or size that depends on the values of a batch"
ENDLESS = "has a loop whose number"
CASES = {
    "branch": (DECIDES, "if ops.mean(x) > 0:", "keras.ops.where(condition, a, b)"),
    "both": (DECIDES, "(x > 0) and (x < 1)", "keras.ops.logical_and"),
    "checked": (DECIDES, "assert ops.all(x >= 0)", "keras.ops.where"),
    "narrow": (DECIDES, "while ops.max(y) > 1:", "keras.ops.fori_loop"),
    "picked": (DECIDES, "lambda x: x if ops.mean(x) > 0 else -x,", "keras.ops.cond"),
    "deep": (DECIDES, "return x if x.mean() > 0", "keras.ops.cond"),
    "numpy": (NUMBER, "np.sort(np.asarray(x))", "keras.ops instead of np"),
    "eager": (NUMBER, "x.numpy() * 2", "keras.ops"),
    "scaled": (NUMBER, "float(ops.max(x))", "no float()"),
    "item": (NUMBER, "x[0, 0].item()", "item()"),
    "named": (NUMBER, 'len(f"{ops.mean(x):.2f}")', "print"),
    "counted": (NUMBER, "for _ in range(int(ops.sum(x))):", "instead of range(n) keras.ops.fori_loop"),
    "torch": ("Keras's tensors do not have", "x.detach()", "keras.ops"),
    "mask": (CHANGES, ": y[y > 0]", "keras.ops.where(mask, x, 0) instead of x[mask]"),
    "nonzero": (CHANGES, "ops.nonzero(x)[0]", "a fixed size for nonzero"),
    "unique": (CHANGES, "jnp.unique(x)[:10]", "nonzero, unique"),
    "largest": (CHANGES, "ops.top_k(x, _count(x))", "the largest size that can occur"),
    "coded": (CHANGES, "ops.one_hot(", "the largest size that can occur"),
    "cut": (CHANGES, "x[:, : _count(x)]", "instead of x[:, :k]"),
    "rows": ("uses the batch size", "for row in x", "keras.ops.vectorized_map"),
    "vanishing": ("uses the batch size", "int(x.shape[0])", "-1 stands for the batch"),
    "flow": ("calls TensorFlow", "tf.nn.relu(x)", "with keras.ops"),
    "spelled": ("with TensorFlow", "tf.strings.as_string(x)", "dataset.map(lambda x, y: (prepare(x), y))"),
    "words": ("strings or 64-bit numbers", "convert_to_tensor", "input pipeline"),
    "noisy": ("without a seed generator", "keras.random.normal", "give the random function seed"),
    "assigns": ("assigns to a part", "x[:, 0] = 0", "keras.ops.slice_update"),
    "plus": ("incompatible shapes for broadcasting: (batch, 16), (3, 3)", "x + np.zeros", "Fix it"),
    "broken": ("raised ValueError: the wheel came off", "raise ValueError(", "Fix it"),
    "looped": (ENDLESS, "ops.while_loop(", "keras.ops.fori_loop(0, LARGEST, body, x)"),
    "limited": (ENDLESS, "maximum_iterations=5", "keras.ops.stop_gradient"),
    "either": ("the same shapes", "ops.cond(", "Give both branches"),
}
"""By the name of the layer: what is wrong with it, the line, and what to write instead."""
WHOLE = {
    "trainer": ("has its own train_step(self, data), as for TensorFlow", "", "Override compute_loss instead"),
    "remembers": ("The model keeps a value from one step for a later one", "", "self.add_weight"),
    "other_shape": ("built for examples of shape (28, 28, 1), and the dataset's have (8, 8, 1)", "", "input_shape"),
    "plain": ("The loss 'loss' makes a Python decision", "", "keras.ops.where"),
    "masking": (f"The loss 'masked' {CHANGES}", "", "a mean as keras.ops.sum(x * mask)"),
    "measuring": (f"The metric 'measured' {NUMBER}", "", "no float()"),
    "several": ("takes 2 inputs, and the dataset gives one", "", "Build it with one keras.Input"),
    "two": ("gives 2 outputs (kind, price)", "", "Return a label for each output"),
}
"""What is wrong with the whole model or its loss, and not with a layer."""
INSTEAD = {"crops": ("augmentation.crop", "set augmentation.crop instead"), "lookup": ("", "in the dataset function")}
OWN_LOSS: dict[str, dict[str, Any]] = {
    "plain": {"loss": f"{FILE}:loss"},
    "masking": {"loss": f"{FILE}:masked"},
    "measuring": {"metrics": [f"{FILE}:measured"]},
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    """The verdict on each case, from one process: each is refused before the compiler runs."""
    configs = {
        name: small_config(model=f"{FILE}:{name}", model_options={}, **OWN_LOSS.get(name, {}))
        for name in (*CASES, *WHOLE, *INSTEAD, "created")
    }
    return verdicts_of(configs, "v5e-1", tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("name", [*CASES, *WHOLE, *INSTEAD])
def test_a_refusal_shows_the_line_and_what_to_write_instead(verdicts: Mapping[str, Verdict], name: str) -> None:
    text, line, remedy = CASES.get(name) or WHOLE.get(name) or ("", "", INSTEAD[name][1])
    verdict = verdicts[name]
    assert verdict.outcome is Outcome.DOES_NOT_COMPILE, verdict.reason
    (finding,) = verdict.findings
    assert (finding.severity, finding.layer) == ("error", "" if name in WHOLE else name)
    assert f"The layer '{finding.layer}'" in verdict.reason or name in WHOLE
    assert text in verdict.reason
    assert remedy in finding.remedy
    if line:
        (place,) = finding.evidence
        assert place.startswith(f"File {FILE}, line ")
        assert line in place
        # Neither Keras's wrappers nor their own failures are shown.
        assert not any(word in finding.text for word in ("_error_repr", "Arguments received", "automatically infer"))
        assert verdict.compiler_says == ""
    if name in INSTEAD:
        assert finding.key == INSTEAD[name][0]


def test_an_internal_error_of_the_compiler_is_not_a_verdict_on_the_model() -> None:
    # jaxlib 0.10.2 fails like this when it reads what libtpu 0.0.51 wrote for `nmt-transformer` on v6e-8.
    cause = RuntimeError("INTERNAL: RET_CHECK failure (external/xla/xla/hlo/ir/hlo_instruction.cc:390) operands")
    verdict = refused(UNKNOWN, RefusedError(cause, None))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "Internal error" in verdict.reason
    assert "libtpu" in verdict.reason
    assert "hlo_instruction.cc:390" in verdict.compiler_says


def test_a_layer_that_is_created_in_call_is_refused_with_its_line(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["created"]
    assert verdict.outcome is Outcome.DOES_NOT_COMPILE, verdict.reason
    (finding,) = verdict.findings
    assert "not part of" in finding.text
    assert f"File {FILE}, line " in finding.text
    assert "layers.Dense(16)(x)" in finding.text
