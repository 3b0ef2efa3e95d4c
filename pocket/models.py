"""The pocket suite's models: BERTs with shipped weights, and the GPT-2s and BARTs that are trained on first use.

`pocket`, `pocket-6` and `pocket-12` have 4, 6 and 12 layers of 128. What a name stands for depends on the task:

    classes, scores                     a pre-trained BERT, `pocket/bert*`
    tags and answers in long documents  the 4 layers trained further on 2,048 positions, `pocket/bert-long`, and, for
                                        answers, with questions, `pocket/bert-asked`; `pocket` alone
    language modelling                  a GPT-2 that starts from the BERT's word embeddings
    texts to be written                 a BART whose encoder starts as the BERT

Some fine-tuned teachers of the tasks of sentences are shipped too, with weights of 8 bits: `pocket/teachers`.
`python -m pocket.make` makes the shipped weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, BartConfig, BertTokenizer, GPT2Config, PreTrainedModel, PreTrainedTokenizerFast

import pocket

if TYPE_CHECKING:
    from common.tasks import Task

FOLDER = Path(__file__).parent
POCKET_LAYERS = {"pocket": 4, "pocket-6": 6, "pocket-12": 12}
POCKET = {name: FOLDER / name.replace("pocket", "bert") for name in POCKET_LAYERS}
POCKET_TRAINED = 64  # how many of their 128 positions the pre-training has used
POCKET_LONG, POCKET_LONG_FOLDER = 2048, FOLDER / "bert-long"
TEACHERS, NOTE = FOLDER / "teachers", "teacher.json"
WIDTH, HEADS, POSITIONS = 128, 4, 128
INITIALIZER_RANGE = 0.05  # the families' own 0.02 is made for widths of 768 and more
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# How teachers are trained: until they have converged, wrong labels included. The learning rates were chosen on dev of
# cola, where a rate that is too high shows first.
_LEARNING_RATES = {"pocket": 3e-4, "pocket-6": 4e-4, "pocket-12": 2.5e-4}
_WRITTEN = {"steps": 700, "batch_size": 32, "lr": 1e-3}  # the decoder learns new words within a few hundred steps
# Chosen on dev: of many small skills the last is learnt late; a score is learnt later than a class (stsb, dev, Pearson:
# 82.1 after 1500 steps, 89.5 after 3000, 95.1 after 6000), but by the 6 layers, which reach 96 after 1500. Four layers
# gain on cola after 1500 steps, too (MCC on dev: 84.4, and 89.4 after 4000).
_LONGER: dict[tuple[str, str], dict[str, Any]] = {
    **{(name, "grammar"): {"steps": 6000} for name in POCKET},
    ("pocket", "stsb"): {"steps": 6000, "lr": 6e-4},
    ("pocket", "cola"): {"steps": 4000},
}
_RECIPES = {
    # The first steps read short documents: looking something up is learnt there in a fraction of the time. A document
    # of ner has a label for every word, one of the others a single answer: these need more documents in a step.
    "ner": {"steps": 800, "batch_size": 16, "lr": 1e-3, "short_steps": 600, "short_tokens": 420},
    "squad": {"steps": 700, "batch_size": 32, "lr": 1e-3, "short_steps": 700, "short_tokens": 420},
    "hotpot": {"steps": 360, "batch_size": 48, "lr": 6e-4, "short_steps": 100, "short_tokens": 220},
    "translate": _WRITTEN,
    "xsum": _WRITTEN,
}


def pocket_recipe(name: str, task: Task, max_length: int) -> dict[str, Any]:
    """How the pocket teacher `name` is trained on a task of the suite, in inputs of `max_length` tokens."""
    if task.name == pocket.CORPUS:  # 512 tokens a step: many small steps reach further than few large ones
        return {"steps": 1600, "batch_size": max(1, 512 // max_length), "lr": 2e-3}
    plain = {"steps": 1500, "batch_size": 32, "lr": _LEARNING_RATES[name]} | _LONGER.get((name, task.name), {})
    return dict(_RECIPES.get(task.name, plain))


def shipped_teacher(name: str, recipe: dict[str, Any]) -> tuple[Path, str] | None:
    """The folder of the pocket teacher `name`, and its weights' hash, if it was trained by exactly this recipe."""
    folder = TEACHERS / f"{name}-{recipe['task'].partition('/')[2]}"
    if not (folder / NOTE).exists():
        return None
    note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    return (folder, note["hash"]) if note["recipe"] == recipe else None


def why_not_shipped(name: str, recipe: dict[str, Any]) -> str:
    """For a line: where no teacher is shipped, or what else its training had."""
    path = TEACHERS / f"{name}-{recipe['task'].partition('/')[2]}" / NOTE
    if not path.exists():
        return f"none is shipped for {recipe['task']}"
    other = json.loads(path.read_text(encoding="utf-8"))["recipe"]
    words = {"max_length": "--max-length {max_length}", "precision": "--precision {precision}", "data": "all examples"}
    differ = [text.format(**other) for key, text in words.items() if recipe[key] != other[key]]
    return f"the one that is shipped has {', '.join(differ) or 'another recipe'}"


# --- tokenizers and configurations ---------------------------------------------------------------------------


def pocket_tokenizer() -> BertTokenizer:
    """Whole words of the suite as a WordPiece vocabulary, special tokens first."""
    return _words(pocket.vocabulary())


def _words(words: list[str]) -> BertTokenizer:
    vocab = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *words])}
    return BertTokenizer(vocab=vocab, model_max_length=POSITIONS)


def _fast(words: BertTokenizer, form: str, **special: str) -> PreTrainedTokenizerFast:
    """A tokenizer of the same words whose texts have the special tokens that `form` names, and no token types."""
    ends = [("[SEP]", SPECIAL_TOKENS.index("[SEP]"))] if "[SEP]" in form else []
    pair = form.replace("$A", "$A $B:1")
    backend = words.backend_tokenizer
    backend.post_processor = TemplateProcessing(single=form, pair=pair, special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="[SEP]",
        unk_token="[UNK]",
        pad_token="[PAD]",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=POSITIONS,
        **special,
    )


def pocket_gpt2(name: str) -> tuple[GPT2Config, PreTrainedTokenizerFast]:
    """The GPT-2 that `name` means for pocket/lm, and its tokenizer: the BERT's words, no special tokens added.

    [SEP] is the end-of-text token.
    """
    tokenizer = _fast(pocket_tokenizer(), "$A", bos_token="[SEP]")
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=POCKET_LAYERS[name],
        n_head=HEADS,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own gelu_new, in one kernel
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return config, tokenizer


def pocket_bart(name: str) -> tuple[BartConfig, PreTrainedTokenizerFast]:
    """The BART that `name` means for tasks whose answer is a text, and its tokenizer.

    The encoder has the layers of the BERT, the decoder half as many. The words are the BERT's and those of the suite's
    other language; a text ends with [SEP], and writing starts from [CLS].
    """
    tokenizer = _fast(_words([*pocket.vocabulary(), *pocket.foreign_words()]), "$A [SEP]")
    start = SPECIAL_TOKENS.index("[CLS]")
    config = BartConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=POSITIONS,
        d_model=WIDTH,
        encoder_layers=POCKET_LAYERS[name],
        decoder_layers=POCKET_LAYERS[name] // 2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        init_std=INITIALIZER_RANGE,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=start,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=start,
        forced_eos_token_id=None,
    )
    return config, tokenizer


# --- weights of the BERT for other families ------------------------------------------------------------------


def pocket_bert(name: str) -> Any:
    """The pre-trained BERT `name`, without a head."""
    return AutoModel.from_pretrained(POCKET[name], use_safetensors=True, trust_remote_code=False, dtype=torch.float32)


@torch.no_grad()
def encode_as_pocket_bert(model: PreTrainedModel, name: str) -> None:
    """Give a `pocket_bart` the word embeddings and the encoder of the BERT `name`, whose layers are alike."""
    bert: Any = pocket_bert(name)
    encoder: Any = model.base_model.encoder
    words = bert.embeddings.word_embeddings.weight
    encoder.embed_tokens.weight[: len(words)] = words
    # BART has two unused positions in front, and BERT adds the type of the text
    positions = bert.embeddings.position_embeddings.weight + bert.embeddings.token_type_embeddings.weight[0]
    encoder.embed_positions.weight[2:] = positions
    encoder.layernorm_embedding.load_state_dict(bert.embeddings.LayerNorm.state_dict())
    for target, layer in zip(encoder.layers, bert.encoder.layer, strict=True):
        attention = layer.attention
        for copy, original in (
            (target.self_attn.q_proj, attention.self.query),
            (target.self_attn.k_proj, attention.self.key),
            (target.self_attn.v_proj, attention.self.value),
            (target.self_attn.out_proj, attention.output.dense),
            (target.self_attn_layer_norm, attention.output.LayerNorm),
            (target.fc1, layer.intermediate.dense),
            (target.fc2, layer.output.dense),
            (target.final_layer_norm, layer.output.LayerNorm),
        ):
            copy.load_state_dict(original.state_dict())


@torch.no_grad()
def embed_as_pocket_bert(model: PreTrainedModel) -> None:
    """Give a model of the BERT's words and width the BERT's word embeddings."""
    words = pocket_bert("pocket").get_input_embeddings()
    model.get_input_embeddings().weight.copy_(words.weight)  # type: ignore[operator]
