"""Twenty families of the library under all scripts, at two shapes: tiny random weights, a few steps, saved, loaded.
No family ends in a traceback, or in a file that says something else than what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import DISENTANGLED, FAMILIES, NEGATIVE, NEUTRAL, POSITIVE, WIDE, call, word_tokenizer, write_sst2
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from common import data, evaluate
from common.errors import BadInput
from common.kinds import Split
from common.layers import attention
from common.tasks import TASKS
from methods import cmow  # noqa: F401  # makes the library know its students

TALL = WIDE | {"num_hidden_layers": 6}
GROUPED = TALL | {"num_key_value_heads": 2}
SIDES = {f"{side}_{name}": value for side in ("encoder", "decoder")
         for name, value in {"layers": 4, "attention_heads": 4, "ffn_dim": 64}.items()}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 4, "num_decoder_layers": 4, "num_heads": 4}
# A masked LM, or by "CausalLM" and "Seq2SeqLM" another: what a family's checkpoints on the hub are
TABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("MaskedLM", TALL),
    "roberta": ("MaskedLM", TALL),
    "electra": ("MaskedLM", TALL),
    "distilbert": ("MaskedLM", FAMILIES["distilbert"] | {"n_layers": 6}),
    "albert": ("MaskedLM", FAMILIES["albert"] | TALL),
    "deberta-v2": ("MaskedLM", TALL | DISENTANGLED),
    "mpnet": ("MaskedLM", TALL),
    "xlnet": ("LMHead", FAMILIES["xlnet"] | {"n_layer": 6}),
    "modernbert": ("MaskedLM", TALL),
    "nomic_bert": ("MaskedLM", TALL),
    "gte": ("MaskedLM", TALL),
    "eurobert": ("MaskedLM", GROUPED | {"head_dim": 8}),
    "gpt2": ("CausalLM", {"n_embd": 32, "n_layer": 6, "n_head": 4, "n_positions": 64}),
    "llama": ("CausalLM", GROUPED),
    "qwen2": ("CausalLM", GROUPED),
    "qwen3": ("CausalLM", GROUPED | {"head_dim": 16}),
    "gemma3_text": ("CausalLM", GROUPED | {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention"] * 3}),
    "modernbert-decoder": ("CausalLM", TALL | {"pad_token_id": 0}),
    "bart": ("Seq2SeqLM", SIDES | {"d_model": 32, "max_position_embeddings": 64}),
    "t5": ("Seq2SeqLM", T5 | {"decoder_start_token_id": 0}),
}
SHAPES = {
    "mc3kd": (["--student", "2x32", "--keep", "2,4"], ["--student", "2x16"]),
    "cka": (["--student", "2x16", "--variant", "kd,cka"], ["--student", "2x32", "--init", "teacher", "--keep", "top"]),
    "xtc": (["--student", "2x32", "--keep", "2,4"], ["--student", "4x32", "--stages", "2", "--bits", "2"]),
    "efficient_attention": ([], ["--student", "3x32", "--attention", "bigbird", "--keep", "spread"]),
    "cmow": (["--student", "hybrid-3-9"], ["--student", "cmow-3", "--init", "general"]),
}


def tokenizer_of(family: str) -> Any:
    """BERT's for encoders; a decoder's has no token for padding, as most have none, and Qwen2's takes bytes."""
    head, _ = TABLE[family]
    if head in ("MaskedLM", "LMHead"):
        return word_tokenizer()
    words = ["<pad>", "</s>", "<unk>", *NEUTRAL, *POSITIVE, *NEGATIVE]
    model = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    own: dict[str, Any] = {"model_max_length": 64}
    if family == "qwen2":  # whose class of the library reads byte-level pairs alone
        signs = ["<pad>", "</s>", "<unk>", *pre_tokenizers.ByteLevel.alphabet()]
        model = Tokenizer(models.BPE({sign: i for i, sign in enumerate(signs)}, [], unk_token="<unk>"))
        model.pre_tokenizer = pre_tokenizers.ByteLevel()
    if head == "Seq2SeqLM":  # whose classifiers read what stands at the end's token
        model.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
        own["pad_token"] = "<pad>"
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="</s>", unk_token="<unk>", **own)


def checkpoint(family: str, folder: Path) -> None:
    """A pre-trained model of a family, as the hub has them."""
    torch.manual_seed(0)
    head, sizes = TABLE[family]
    tokenizer = tokenizer_of(family)
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "eos")}
    special = {name: token for name, token in special.items() if token is not None}
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer) + 8, **(special | sizes))
    library = "AutoModelForCausalLM" if head == "LMHead" else f"AutoModelFor{head}"
    getattr(transformers, library).from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def again(folder: Path, task: data.TaskData) -> str:
    """What is wrong with a saved student; "" for nothing."""
    head = transformers.AutoModelForSequenceClassification
    if hasattr(AutoConfig.from_pretrained(folder), "efficient_attention"):
        model = attention.load(folder, head)
    else:
        model = head.from_pretrained(folder)
    before = load_file(folder / "predictions.safetensors")
    found = evaluate.evaluate(model.eval(), AutoTokenizer.from_pretrained(folder), task, 16).predictions
    far = max(float((torch.from_numpy(found[name]) - value).abs().max()) for name, value in before.items())
    return "" if far < 1e-4 else f"loaded again, its outputs differ by {far:.3g}"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keeps the families' checkpoints and their fine-tuned teachers."""
    root = tmp_path_factory.mktemp("families")
    write_sst2(root / "data" / "SST-2", 64, 32)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("family", TABLE)
@pytest.mark.parametrize("method", SHAPES)
@pytest.mark.parametrize("shape", [0, 1])
def test_a_cell_is_trained_or_refused(family: str, method: str, shape: int, shelf: Path, tmp_path: Path) -> None:
    """Every row is trained and predicts the same when it is loaded again, or one line says why not."""
    if not (shelf / family / "config.json").exists():
        checkpoint(family, shelf / family)
    argv = ["--task", "sst2", "--data-dir", shelf / "data", "--teacher", shelf / family, "--teacher-epochs", 1]
    argv += ["--batch-size", 8, "--budget", 48, "--max-length", 16, "--device", "cpu", "--out-dir", tmp_path]
    code, _, err = call(method, *argv, "--cache-dir", shelf / "cache" / family, *SHAPES[method][shape])
    assert code == 0 or (code == 2 and "error: " in err and family not in ("bert", "roberta", "electra")), err
    task, made = data.load("sst2", str(shelf / "data")), list(tmp_path.rglob("result.json"))
    assert made or code
    assert not [f"{path}: {said}" for path in made if (said := again(path.parent, task))]


def test_a_text_of_no_tokens_is_a_line() -> None:
    """Tokenizers of decoders put no token of their own beside a text's."""
    split = Split(["row 1", "row 2"], [("good",), ("",)], [0, 1])
    with pytest.raises(BadInput, match=r"row 2: .* makes no tokens of it"):
        TASKS["sst2"].kind.tokenise(tokenizer_of("llama"), split, TASKS["sst2"], 16)
