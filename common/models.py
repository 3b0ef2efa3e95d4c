"""Load, build, initialise, count and save models: one path through the library's Auto classes for every family."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers
from safetensors import SafetensorError
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BartConfig,
    BertTokenizer,
    GPT2Config,
    MBartTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from common import parallel
from common.args import BadInput, first_line
from common.data import GENERATED, WINDOWED, Task

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

HEADS = {
    "classification": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "language modelling": AutoModelForCausalLM,
    "token classification": AutoModelForTokenClassification,
    "span QA": AutoModelForQuestionAnswering,
    "translation": AutoModelForSeq2SeqLM,
    "summarisation": AutoModelForSeq2SeqLM,
}
# The pocket suite's models and their layers: pre-trained BERTs, made by common/backbone.py, and, under the same names,
# GPT-2s for pocket/lm, and BARTs whose encoder is the BERT for texts to be written.
POCKET_LAYERS = {"pocket": 4, "pocket-6": 6, "pocket-12": 12}
POCKET = {name: Path(__file__).with_name("pocket") / name.replace("pocket", "bert") for name in POCKET_LAYERS}
POCKET_TRAINED = 64  # the positions that their pre-training has seen
# What `pocket` is for long documents: the same, pre-trained further on so many positions; and for questions over them
POCKET_LONG, POCKET_LONG_FOLDER = 2048, Path(__file__).with_name("pocket") / "bert-long"
POCKET_ASKED_FOLDER = Path(__file__).with_name("pocket") / "bert-asked"
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def task_settings(task: Task) -> dict[str, Any]:
    """The entries of a configuration that make the library build this task's head, labels named."""
    if task.kind in ("language modelling", *GENERATED):
        return {}  # the output layer is as large as the vocabulary
    if task.kind == "span QA":
        return {"num_labels": 2}  # start and end
    if task.kind == "regression":
        return {"num_labels": 1, "problem_type": "regression"}
    names = dict(enumerate(task.labels))
    settings: dict[str, Any] = {"id2label": names, "label2id": {v: k for k, v in names.items()}}
    return (
        settings if task.kind == "token classification" else settings | {"problem_type": "single_label_classification"}
    )


# --- loading and building ----------------------------------------------------------------------------------


def pocket_tokenizer() -> BertTokenizer:
    """Whole words of the pocket suite's lexicon as a WordPiece vocabulary."""
    from common.pocket import sentences as pocket

    vocab = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *pocket.vocabulary()])}
    return BertTokenizer(vocab=vocab, model_max_length=128)


def pocket_gpt2(name: str) -> tuple[GPT2Config, PreTrainedTokenizerFast]:
    """The GPT-2 that `name` means for pocket/lm, 128 wide, and its tokenizer: the words of the pocket BERT.

    [SEP] is the end-of-text token, and a text gets no special tokens of its own.
    """
    backend = pocket_tokenizer().backend_tokenizer
    backend.post_processor = TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="[SEP]",
        eos_token="[SEP]",
        unk_token="[UNK]",
        pad_token="[PAD]",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=128,
    )
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=128,
        n_embd=128,
        n_layer=POCKET_LAYERS[name],
        n_head=4,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own gelu_new, in one kernel
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=0.05,  # GPT-2's 0.02 is made for a width of 768
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return config, tokenizer


def pocket_bart(name: str) -> tuple[BartConfig, PreTrainedTokenizerFast]:
    """The BART that `name` means for pocket tasks whose answer is a text, 128 wide, and its tokenizer.

    The encoder has the layers of the pocket BERT, the decoder half as many. The words are those of the BERT and those
    of the suite's other language; a text ends with [SEP], and writing starts from [CLS].
    """
    from common.pocket import sentences as pocket
    from common.pocket import texts as pocket_texts

    words = [*SPECIAL_TOKENS, *pocket.vocabulary(), *pocket_texts.foreign_words()]
    backend = BertTokenizer(vocab={token: i for i, token in enumerate(words)}).backend_tokenizer
    end = ("[SEP]", SPECIAL_TOKENS.index("[SEP]"))
    backend.post_processor = TemplateProcessing(single="$A [SEP]", pair="$A $B:1 [SEP]", special_tokens=[end])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="[SEP]",
        unk_token="[UNK]",
        pad_token="[PAD]",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=128,
    )
    start = SPECIAL_TOKENS.index("[CLS]")
    config = BartConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=128,
        d_model=128,
        encoder_layers=POCKET_LAYERS[name],
        decoder_layers=POCKET_LAYERS[name] // 2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        init_std=0.05,  # BART's 0.02 is made for a width of 1024
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=start,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=start,
        forced_eos_token_id=None,
    )
    return config, tokenizer


def pocket_bert(name: str) -> Any:
    return AutoModel.from_pretrained(POCKET[name], use_safetensors=True, trust_remote_code=False, dtype=torch.float32)


@torch.no_grad()
def encode_as_pocket_bert(model: PreTrainedModel, name: str) -> None:
    """Give a `pocket_bart` the word embeddings and the encoder of the pocket BERT `name`, whose layers are alike."""
    bert: Any = pocket_bert(name)
    encoder: Any = model.base_model.encoder
    words = bert.embeddings.word_embeddings.weight
    encoder.embed_tokens.weight[: len(words)] = words
    # BART has two unused positions in front, and BERT adds the type of the text
    positions = bert.embeddings.position_embeddings.weight + bert.embeddings.token_type_embeddings.weight[0]
    encoder.embed_positions.weight[2:] = positions
    encoder.layernorm_embedding.load_state_dict(bert.embeddings.LayerNorm.state_dict())
    for own, layer in zip(encoder.layers, bert.encoder.layer, strict=True):
        attention = layer.attention
        pairs = [
            (own.self_attn.q_proj, attention.self.query),
            (own.self_attn.k_proj, attention.self.key),
            (own.self_attn.v_proj, attention.self.value),
            (own.self_attn.out_proj, attention.output.dense),
            (own.self_attn_layer_norm, attention.output.LayerNorm),
            (own.fc1, layer.intermediate.dense),
            (own.fc2, layer.output.dense),
            (own.final_layer_norm, layer.output.LayerNorm),
        ]
        for mine, theirs in pairs:
            mine.load_state_dict(theirs.state_dict())


@torch.no_grad()
def embed_as_pocket_bert(model: PreTrainedModel) -> None:
    """Give a model of the pocket BERT's words and width the BERT's word embeddings."""
    words = pocket_bert("pocket").get_input_embeddings()
    model.get_input_embeddings().weight.copy_(words.weight)  # type: ignore[operator]


def source(name: str, kind: str = "classification") -> str:
    """What the library loads for the name of a model: the folder of a pocket model, otherwise the name itself."""
    if name == "pocket" and kind in WINDOWED:
        return str(POCKET_ASKED_FOLDER if kind == "span QA" else POCKET_LONG_FOLDER)
    return str(POCKET.get(name, name))


def load_config(name: str, argument: str = "--teacher") -> PreTrainedConfig:
    """The configuration behind a hub id or a folder; `BadInput` names the argument and says what would work."""
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the library has many ways to say that a file is no configuration
        what = "is a folder without a config.json that names a known model_type" if Path(name).is_dir() else (
            "is no folder here and cannot be had from the hub"
        )  # fmt: skip
        raise BadInput(
            f"{argument} {name}: {what}; give pocket, or a folder written by save_pretrained ({first_line(error)})"
        ) from error


def load_tokenizer(name: str) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the tokenizers' own errors are plain ones
        raise BadInput(f"--teacher {name}: has no tokenizer that can be loaded ({first_line(error)})") from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what the library makes of a folder without one
        raise BadInput(f"--teacher {name}: has no tokenizer; its files have to be in the same folder")
    return tokenizer


LANGUAGES = {"en": "en_XX", "es": "es_XX", "fr": "fr_XX", "ro": "ro_RO"}  # mBART's codes


def set_languages(model: PreTrainedModel, tokenizer: Any, task: Task) -> None:
    """Tell an mBART between which languages it translates; the name of the task says so: wmt16/en-ro.

    mBART-25 starts to write from the code of a language, mBART-50 has it as its first word. Nothing is done to other
    families, which know one pair of languages or are told in words.
    """
    languages = task.name.partition("/")[2].split("-")
    if task.kind == "translation" and hasattr(tokenizer, "tgt_lang") and len(languages) == 2:
        tokenizer.src_lang, tokenizer.tgt_lang = (LANGUAGES[language] for language in languages)
        first = "decoder_start_token_id" if isinstance(tokenizer, MBartTokenizer) else "forced_bos_token_id"
        setattr(model.generation_config, first, tokenizer.convert_tokens_to_ids(tokenizer.tgt_lang))


def load_model(
    name: str, config: PreTrainedConfig, kind: str, head: bool = False, dtype: torch.dtype = torch.float32,
    device_map: str | None = None,
) -> PreTrainedModel:  # fmt: skip
    """Weights from safetensors into the task's architecture.

    Every weight outside the task head, and with `head` every weight, must come from the file: a model that is
    silently left at random is refused. A `config` with fewer layers than the file takes the first layers.
    """
    try:
        model, report = HEADS[kind].from_pretrained(
            name, config=config, use_safetensors=True, trust_remote_code=False, dtype=dtype,
            output_loading_info=True, ignore_mismatched_sizes=True, device_map=device_map,
        )  # fmt: skip
    except SafetensorError as error:
        raise BadInput(f"--teacher {name}: damaged model.safetensors ({first_line(error)})") from error
    except Exception as error:  # whatever a wrong configuration breaks first
        raise BadInput(f"--teacher {name}: its weights cannot be loaded ({first_line(error)})") from error
    body = model.base_model_prefix + "."
    # a head of another task, of other size, is left out as if the file had none
    absent = sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])
    lost = [key for key in absent if head or (key.startswith(body) and ".pooler." not in key)]
    if lost:
        raise BadInput(f"--teacher {name}: {len(lost)} weights are not in its file, the first is {lost[0]}")
    check_finite(model, f"--teacher {name}")
    if kind == "language modelling" and not is_causal(model):
        raise BadInput(f"--teacher {name}: sees the tokens that it has to predict; give a causal model, such as GPT-2")
    return model


def check_finite(model: nn.Module, what: str) -> None:
    """Raise `BadInput` for weights that are not finite: of such a model every figure would be wrong."""
    for name, weights in model.named_parameters():
        if not torch.isfinite(weights).all():
            raise BadInput(f"{what}: its {name} is not finite; another file, or in training a lower --lr, would do")


@torch.no_grad()
def is_causal(model: PreTrainedModel) -> bool:
    """Whether predictions depend on no later token; BERT's do, though the library loads it as a language model."""
    was_training = model.training
    model.eval()
    ids = torch.zeros((1, 4), dtype=torch.long)
    other = ids.clone()
    other[0, 3] = 1
    first, second = (model(input_ids=i).logits[0, :3] for i in (ids, other))
    model.train(was_training)
    return torch.allclose(first, second, atol=1e-5)


def has_head(config: PreTrainedConfig, task: Task) -> bool:
    """Whether a checkpoint has a head of this task's kind and size: it was fine-tuned, or is a language model."""
    if task.kind == "language modelling":
        return any("CausalLM" in name or "LMHead" in name for name in config.architectures or [])
    if task.kind in GENERATED:
        return any("ForConditionalGeneration" in name or "MTModel" in name for name in config.architectures or [])
    kind = {"token classification": "ForTokenClassification", "span QA": "ForQuestionAnswering"}
    head = any(kind.get(task.kind, "ForSequenceClassification") in name for name in config.architectures or [])
    return head and (task.kind == "span QA" or config.num_labels == (len(task.labels) or 1))


# The families' names of the feed-forward width; GPT-2's n_inner is None where it is 4 x the width
FFN = ("intermediate_size", "d_inner", "hidden_dim", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff")


def student_config(
    teacher: PreTrainedConfig, layers: int, width: int, ffn: int | None = None, **changes: Any
) -> PreTrainedConfig:
    """The teacher's configuration with other layers and width and, where it divides, its head size.

    `ffn`: the feed-forward width (default: in the teacher's ratio). Of an encoder-decoder, the layers are those of
    both sides together, half and half; an odd number is a `BadInput`.
    """
    config = copy.deepcopy(teacher)
    if teacher.is_encoder_decoder:
        if layers % 2:
            raise BadInput(
                f"--student {layers}x{width}: an encoder-decoder has as many layers on both sides; give 2, 4..."
            )
        for name in ("encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers"):
            if hasattr(teacher, name):
                setattr(config, name, layers // 2)
        layers //= 2
    config.num_hidden_layers = layers
    if width != teacher.hidden_size:
        per_head = getattr(teacher, "d_kv", None) or teacher.hidden_size // teacher.num_attention_heads
        heads = max(1, width // per_head)
        while width % heads:
            heads -= 1
        config.hidden_size, config.num_attention_heads = width, heads
        if hasattr(teacher, "decoder_attention_heads"):
            config.decoder_attention_heads = heads
        for name in FFN:
            if getattr(teacher, name, None):
                setattr(config, name, width * getattr(teacher, name) // teacher.hidden_size)
        if hasattr(teacher, "pooler_hidden_size"):  # DeBERTa
            config.pooler_hidden_size = width
        if hasattr(teacher, "d_head"):  # XLNet
            config.d_head = width // heads
    for name in FFN:
        if ffn and hasattr(teacher, name):
            setattr(config, name, ffn)
    for key, value in changes.items():
        setattr(config, key, value)
    return config


def stack_depths(config: PreTrainedConfig) -> list[int]:
    """The number of layers of the encoder and, of an encoder-decoder, of the decoder."""
    if not config.is_encoder_decoder:
        return [config.num_hidden_layers]
    decoder = getattr(config, "decoder_layers", None) or config.num_decoder_layers
    return [config.num_hidden_layers, decoder]


def build_student(config: PreTrainedConfig, kind: str, pretrained: str | None) -> PreTrainedModel:
    """A student at random, or with embeddings and the first layers of a pre-trained checkpoint."""
    if pretrained is None:
        build = functools.partial(HEADS[kind].from_config, config)
        check_memory(build, f"--student {sum(stack_depths(config))}x{config.hidden_size}")
        return build()
    return load_model(pretrained, config, kind)


def inputs_with_labels(batch: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    """A batch under the names by which the library's heads take labels, so that their output has a loss."""
    if kind != "span QA":
        return batch
    start, end = batch["labels"].unbind(-1)
    return {k: v for k, v in batch.items() if k != "labels"} | {"start_positions": start, "end_positions": end}


def token_logits(output: Any) -> torch.Tensor:
    """(B, L, T) scores of tags, or (B, L, 2) of being an answer's first and last token."""
    return output.logits if "logits" in output else torch.stack([output.start_logits, output.end_logits], -1)


def predictions(output: Any, batch: dict[str, torch.Tensor], kind: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a loss compares: pairs of logits (n, C) and targets (n,), one row for every prediction.

    `batch` is `data.collate`'s. One pair; for questions two, of first and last token, over the L positions of a
    window, of which those of padding have no probability; for scores the targets are scores. Of tags only those of
    labelled tokens are rows; token i of a language model predicts token i + 1.
    """
    labels = batch["labels"]
    if kind == "span QA":
        padded = batch["attention_mask"] == 0
        return [
            (logits.masked_fill(padded, -1e4), target)
            for logits, target in zip((output.start_logits, output.end_logits), labels.unbind(-1), strict=True)
        ]
    if kind == "token classification":
        labelled = labels >= 0
        return [(output.logits[labelled], labels[labelled])]
    if kind == "language modelling":
        return [(output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())]
    return [(output.logits, labels)]


@torch.no_grad()
def lengthen(model: PreTrainedModel, rows: int, kept: int, trained: int | None = None) -> None:
    """Give a model with learned absolute positions a table of so many rows, in place: what follows the first `kept`
    rows is repeated, up to row `trained` (default: all), the last that its pre-training has seen.
    """
    embeddings: Any = model.base_model.embeddings
    old = embeddings.position_embeddings
    usable = old.weight[kept:trained]
    weight = torch.cat([old.weight[:kept], usable.repeat(-(-rows // len(usable)), 1)])[:rows]
    embeddings.position_embeddings = nn.Embedding.from_pretrained(weight, freeze=False, padding_idx=old.padding_idx)
    device, buffers = weight.device, dict(embeddings.named_buffers())
    made = {"position_ids": torch.arange(rows, device=device)[None]}
    made["token_type_ids"] = torch.zeros(1, rows, dtype=torch.long, device=device)
    for name in made.keys() & buffers.keys():
        embeddings.register_buffer(name, made[name], persistent=False)
    model.config.max_position_embeddings = rows


# Peak learning rates from random weights; that of language models was chosen on held-out unlabelled documents
RANDOM_LR = {"classification": 1e-3, "regression": 1e-3, "language modelling": 3e-3}
RANDOM_LR |= {"token classification": 1e-3, "span QA": 1e-3, "translation": 4e-3, "summarisation": 4e-3}


def default_lr(width: int) -> float:
    """Peak learning rate for fine-tuning: BERT-base's usual 5e-5 at width 768, larger for narrower models."""
    return 5e-5 * 768 / width


def check_memory(build: Callable[[], nn.Module], what: str) -> None:
    """Raise `BadInput` for a model that no memory of this machine could train; it is built without any."""
    with torch.device("meta"):
        count = parameters(build())
    # weights, gradients and both of Adam's moments in float32
    needed, there = 16 * count, psutil.virtual_memory().total
    if needed > there:
        raise BadInput(
            f"{what}: {count:,} parameters need {needed / 2**30:,.0f} GiB of memory to train, this machine has"
            f" {there / 2**30:.0f}; give less"
        )


# --- sizes and files ---------------------------------------------------------------------------------------


def parameters(model: nn.Module) -> int:
    """Trainable or not, tied weights once."""
    return sum(p.numel() for p in model.parameters())


def checkpoint_activations(model: Any) -> None:
    """Let a model keep a layer's inputs alone between its passes, and compute what is inside again."""
    if not model.supports_gradient_checkpointing:
        raise BadInput(f"--gradient-checkpointing: {model.config.model_type} does not support it; leave it out")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def weight_bytes(model: nn.Module) -> int:
    """Bytes of the weights as they are held, tied weights once."""
    return sum(p.numel() * p.element_size() for p in model.parameters())


def save(model: PreTrainedModel, tokenizer: Any, folder: Path, card: str) -> int:
    """Write the Hugging Face layout (safetensors, tokenizer, model card); return the bytes of the weights.

    Of several processes the main one writes.
    """
    if not parallel.main():
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return sum(f.stat().st_size for f in folder.glob("model*.safetensors"))  # not the checkpoint's


def file_digest(folder: Path) -> str:
    """Short SHA-256 of the weights and the configuration in a model folder."""
    total = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        if path.exists():
            with path.open("rb") as file:
                while part := file.read(2**20):
                    total.update(part)
    return total.hexdigest()[:12]
