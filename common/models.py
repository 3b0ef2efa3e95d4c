"""Load, build, cut, count and save models: one path through the library's Auto classes for every family."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES

from common import parallel
from common.errors import BadInput, first_line, refused
from common.kinds import Kind
from common.layers import mark_own
from common.results import apply_umask
from common.values import KEEP, layer_list, parse_model
from pocket.models import POCKET

# --- loading -------------------------------------------------------------------------------------------------


def source(name: str, kind: str = "classification") -> str:
    """What the loaders below take for the name of a model: a pocket model's folder, otherwise the name itself."""
    if name == "pocket" and (body := Kind.of(kind).pocket_body):
        return str(POCKET[name].with_name(body))
    base, _ = parse_model(name)
    return f"{POCKET.get(base, base)}{name.removeprefix(base)}"


def load_config(name: str, argument: str = "--teacher") -> PreTrainedConfig:
    """The configuration behind a hub id or a folder, of "NAME:6" with 6 layers; `BadInput` names the argument and says
    what would work."""
    name, layers = parse_model(name)
    what = "is a folder without a config.json that names a known model_type"
    if not Path(name).is_dir():
        what = "is no folder here and cannot be had from the hub"
        from common.hub import ask_for_model

        ask_for_model(name)
    if (Path(name) / "adapter_config.json").is_file():
        raise BadInput(f"{argument} {name}: holds an adapter of PEFT, which is not read; merge_and_unload() makes"
                       " one model of both, save_pretrained writes it")  # fmt: skip
    instead = "; give a folder written by save_pretrained; for a pocket task pocket works"
    with refused(f"{argument} {name}: {what}", hint=instead):  # the library has many ways to say it
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    if layers is not None:
        if layers > (deep := sum(stack_depths(config))):
            raise BadInput(f"{argument} {name}:{layers}: the model has {deep} layers; give {deep} or fewer")
        set_depth(config, layers)
    return config


def load_tokenizer(name: str, argument: str = "--teacher") -> Any:
    name, _ = parse_model(name)
    with refused(f"{argument} {name}: has no tokenizer that can be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what the library makes of a folder without one
        raise BadInput(f"{argument} {name}: has no tokenizer; its files have to be in the same folder")
    return tokenizer


def vocabulary_size(tokenizer: Any) -> int:
    """The largest id and 1: more than there are words where ids have holes."""
    return max(tokenizer.get_vocab().values(), default=0) + 1


def load_model(name: str, config: PreTrainedConfig, kind: str, head: bool = False,
               dtype: torch.dtype = torch.float32, argument: str = "--teacher") -> PreTrainedModel:  # fmt: skip
    """A model with the head of a task, of which a head of another task, or size, is left at random. With `head` every
    weight must come from the file; without, packed weights are refused. `argument` named the model."""
    if getattr(config, "quantization_config", None) and not head:
        raise BadInput(f"{argument} {name}: its weights are packed, none can be trained; a float model would do")
    dtype = torch.float32 if Kind.of(kind).scale else dtype  # scores of any unit are divided first
    model, absent = read_model(name, config, Kind.of(kind).auto, dtype, argument)
    if absent and (head or Kind.of(kind).written):  # an encoder-decoder has no head of the task
        raise BadInput(f"{argument} {name}: {len(absent)} weights are not in its file, the first is {absent[0]}")
    if Kind.of(kind).causal and not is_causal(model):
        raise BadInput(f"{argument} {name}: sees the tokens that it has to predict; give a causal model, such as GPT-2")
    return scale_head(model, kind, absent)


def read_model(name: str, config: PreTrainedConfig, auto: Any, dtype: torch.dtype = torch.float32,
               argument: str = "--teacher") -> tuple[PreTrainedModel, list[str]]:  # fmt: skip
    """Weights from safetensors in a model of one of the library's Auto classes, and the names of those of its head that
    the file lacks; layers that `config` has not are left out, the last first.

    All other weights must come from the file: a model that is silently left at random is refused.
    """
    try:
        if hasattr(config, "efficient_attention"):  # a converted model, of whose modules the library does not know
            from common.layers import attention

            model, lost = attention.read(parse_model(name)[0], auto, config)
            model.to(dtype)  # type: ignore[arg-type]
            report: dict[str, Any] = {"missing_keys": lost, "mismatched_keys": []}
        else:
            model, report = auto.from_pretrained(
                parse_model(name)[0], config=config, use_safetensors=True, trust_remote_code=False, dtype=dtype,
                output_loading_info=True, ignore_mismatched_sizes=True,
            )  # fmt: skip
    except SafetensorError as error:
        raise BadInput(f"{argument} {name}: damaged model.safetensors ({first_line(error)})") from error
    except Exception as error:  # whatever a wrong configuration breaks first
        raise BadInput(f"{argument} {name}: its weights cannot be loaded ({why_not(name, error)})") from error
    # a head of other size is left out as if the file had none
    absent = sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])
    if lost := [key for key in absent if in_body(model, key)]:
        raise BadInput(f"{argument} {name}: {len(lost)} weights are not in its file, the first is {lost[0]}")
    check_finite(model, f"{argument} {name}", absent)
    return model, absent


def why_not(name: str, error: Exception) -> str:
    """Why it cannot be loaded, and what to do without safetensors, for which the library has asked the hub in vain."""
    if "file named model.safetensors" not in str(error):
        return first_line(error)
    return (
        "no model.safetensors, nor does the hub convert its weights; where you trust them,"
        f" AutoModelForPreTraining.from_pretrained({name!r}).save_pretrained(DIR) does, and --teacher DIR reads that"
    )


def in_body(model: PreTrainedModel, key: str) -> bool:
    """Whether a weight is the body's; its pooler is trained with a task's head."""
    return key.startswith(f"{model.base_model_prefix}.") and ".pooler." not in key


def check_finite(model: nn.Module, what: str, absent: Collection[str] = ()) -> None:
    """Raise `BadInput` for weights that are not finite: of such a model every figure would be wrong. Those that are
    `absent` from its file are not looked at: the library leaves some of them as the memory was."""
    for name, weights in model.named_parameters():
        if name not in absent and not torch.isfinite(weights).all():
            raise BadInput(f"{what}: its {name} is not finite; another file, or in training a lower --lr, would do")


@torch.no_grad()
def is_causal(model: PreTrainedModel) -> bool:
    """Whether predictions depend on no later token; BERT's do, though the library loads it as a language model."""
    ids = torch.zeros((1, 4), dtype=torch.long)
    other = ids.clone()
    other[0, 3] = 1
    first, second = (model(input_ids=i).logits[0, :3] for i in (ids, other))
    return torch.allclose(first, second, atol=1e-5)


# --- students ------------------------------------------------------------------------------------------------

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
    if hasattr(config, "quantization_config"):  # of a teacher whose weights are packed
        del config.quantization_config
    set_depth(config, layers)
    if width != teacher.hidden_size:
        sizes = (getattr(teacher, name, None) for name in ("d_kv", "head_dim"))
        per_head = next(filter(None, sizes), teacher.hidden_size // teacher.num_attention_heads)
        heads = max(1, width // per_head)
        while width % (2 * heads):  # rotary positions turn pairs
            heads -= 1
        shared = getattr(teacher, "num_key_value_heads", None) or 0  # each serves several heads
        follows = {
            **dict.fromkeys(("hidden_size", "pooler_hidden_size"), width),
            **dict.fromkeys(("num_attention_heads", "decoder_attention_heads"), heads),
            **dict.fromkeys(("head_dim", "d_head"), width // heads),
            "num_key_value_heads": math.gcd(heads, max(1, heads * shared // teacher.num_attention_heads)),
            **{name: width * (getattr(teacher, name, None) or 0) // teacher.hidden_size for name in FFN},
        }
        for name, value in follows.items():
            if getattr(teacher, name, None):
                setattr(config, name, value)
    for name in FFN:
        if ffn and hasattr(teacher, name):
            setattr(config, name, ffn)
    config.update(changes)
    return config


def set_depth(config: PreTrainedConfig, layers: int, kept: list[int] | None = None) -> None:
    """Give a configuration so many layers, of an encoder-decoder half of them on each side.

    Where it lists what each layer is, `kept` says whose entries stay, numbered from 1; by default the first ones.
    """
    if config.is_encoder_decoder:
        if layers % 2:
            raise BadInput(f"{layers} layers: an encoder-decoder has as many layers on both sides; give 2, 4...")
        layers //= 2
        for name in DEPTHS[1:]:
            if hasattr(config, name):
                setattr(config, name, layers)
    config.num_hidden_layers = layers
    for name in LAYER_LISTS:
        if isinstance(entries := getattr(config, name, None), list):
            setattr(config, name, [entries[(l - 1) % len(entries)] for l in kept or range(1, layers + 1)])
    with refused(f"{config.model_type}: cannot be cut to {layers} layers"):  # GPT-Neo, which could not be saved
        config.validate()


# Of configurations that list their layers, such as ModernBERT's and Qwen's: what has an entry for each
LAYER_LISTS = ("layer_types", "mlp_layer_types", "attention_window")
DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers")


def stack_depths(config: PreTrainedConfig) -> list[int]:
    """The number of layers of the encoder and, of an encoder-decoder, of the decoder."""
    if not config.is_encoder_decoder:
        return [config.num_hidden_layers]
    decoder = getattr(config, "decoder_layers", None) or config.num_decoder_layers
    return [config.num_hidden_layers, decoder]


# distilBART's choices of 12 layers where they are not spread evenly, both ends included, as all others are
SPREAD = {2: [1, 7], 4: [1, 5, 9, 12], 9: [1, 2, 3, 5, 6, 8, 10, 11, 12]}


def layer_numbers(rule: str, N: int, m: int) -> list[int]:
    """Which m of N layers, numbered from 1, a rule of `--keep` names; `BadInput` where there are too few."""
    if m > N:
        raise BadInput(f"--student: {m} layers cannot be kept of {N}")
    if rule == "first":
        return list(range(1, m + 1))
    if rule == "top":
        return list(range(N - m + 1, N + 1))
    if rule == "skip":
        # XTC's choice for (12, 5); the rule would end with 12
        return [3, 5, 7, 9, 11] if (N, m) == (12, 5) else [i * N // m for i in range(1, m + 1)]
    if rule == "spread":
        return SPREAD[m] if N == 12 and m in SPREAD else [1 + round(i * (N - 1) / max(1, m - 1)) for i in range(m)]
    layers = layer_list(rule)
    if len(layers) != m or layers[-1] > N:
        raise BadInput(f"--keep {rule}: names {len(layers)} layers, the student has {m} of {N}")
    return layers


def named_layers(rule: str, layers: int) -> str:
    """As tables name what `keep_layers` keeps: "first 2 layers", "layers 1,3"."""
    return f"{rule} {layers} layers" if rule in KEEP else f"layers {rule}"


@torch.no_grad()
def keep_layers(model: PreTrainedModel, rule: str, layers: int) -> PreTrainedModel:
    """Leave out all but `layers` layers, in place, as `--keep` says; an encoder-decoder keeps half on each side.

    Embeddings, pooler and head stay. ALBERT's layers are one and the same, used fewer times.
    """
    depths, wanted = stack_depths(model.config), copy.copy(model.config)
    set_depth(wanted, layers)
    stacks: dict[str, nn.ModuleList] = {}  # the outermost lists: T5's blocks hold lists of their own
    for name, module in model.base_model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in stacks)
        if isinstance(module, nn.ModuleList) and len(module) in depths and not inside:
            stacks[name] = module
    if len(stacks) != len(depths) and model.config.model_type != "albert":
        raise BadInput(f"--teacher: {model.config.model_type} has no list of {depths[0]} layers to choose from")
    kept: list[int] | None = None
    for stack, m in zip(stacks.values(), stack_depths(wanted), strict=False):
        first = stack[0]
        if m != len(stack):
            kept = layer_numbers(rule, len(stack), m)
            for i in reversed(range(len(stack))):
                if i + 1 not in kept:
                    del stack[i]
        for name, module in first.named_modules() if stack[0] is not first else ():
            if isinstance(module, nn.Identity):  # ModernBERT's first layer has no norm: it reads normalised embeddings
                stack[0].set_submodule(name, nn.Identity())
            # T5's first block holds the position bias of all
            if getattr(module, "has_relative_attention_bias", False):
                attention: Any = stack[0].get_submodule(name)
                attention.has_relative_attention_bias = True
                attention.relative_attention_bias = module.relative_attention_bias
        for i, layer in enumerate(stack):
            for module in layer.modules():
                if hasattr(module, "layer_idx"):  # a layer's place in the cache of a decoder
                    module.layer_idx = i  # type: ignore[assignment]
    configs = {id(m.config): m.config for m in model.modules() if isinstance(m, PreTrainedModel)}  # some have copies
    for config in configs.values():
        if config.is_encoder_decoder == model.config.is_encoder_decoder:  # T5's stacks are called decoders alone
            set_depth(config, layers, kept)
    with torch.device("meta"):
        again = dict(type(model)(model.config).named_parameters())
    for name, weight in model.named_parameters():
        if name in again and weight.shape != again[name].shape:  # ESM's contacts: saved, it could not be loaded
            raise BadInput(f"{model.config.model_type}: cannot be cut to {layers} layers, {name} depends on them")
    return model


def trainable_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a teacher that can be trained: in float32, with gradients, without a hook in any of its modules but
    those of a converted attention.

    A hook that was copied would still write to where the teacher's writes. The library makes its own ones again.
    """
    if getattr(model.config, "quantization_config", None):
        raise BadInput("--init teacher: its weights are packed, none can be trained; --init random works")
    student = copy.deepcopy(model).float().requires_grad_()
    for module in student.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
            for key, hook in list(hooks.items()):
                if getattr(hook, "__module__", "") != f"{__package__}.layers.attention":
                    del hooks[key]
        module.__dict__.pop("_output_capturing_hooks_installed", None)
    return student


def build(config: PreTrainedConfig, head: Any) -> PreTrainedModel:
    """A model with random weights in float32, for tasks of a kind or of one of the library's Auto classes.

    A T5 whose decoder's states are not scaled, a Flan-T5, has an output layer of its own, which the library would tie.
    """
    config.dtype = torch.float32  # the checkpoint's may be another
    model = (Kind.of(head).auto if isinstance(head, str) else head).from_config(config)
    if config.model_type == "t5" and not config.scale_decoder_outputs and hasattr(model, "lm_head"):
        words = model.get_input_embeddings().weight
        model.lm_head.weight = nn.Parameter(torch.randn_like(words) * config.hidden_size**-0.5)
    if hasattr(config, "efficient_attention"):
        from common.layers import attention

        attention.install(model)
    return scale_head(model, head)


@torch.no_grad()
def scale_head(model: PreTrainedModel, kind: Any, absent: Collection[str] | None = None) -> PreTrainedModel:
    """Give a model of scores a head with the kind's scale, in place; other models stay as they are.

    A head that is `absent` from the model's file (None: there is no file) keeps its first weights; another answers as
    before. A decoder's head, which has no bias, takes the standard deviation alone. Packed heads, which are not
    trained, stay.
    """
    fold_head(model)
    if (scale := getattr(kind, "scale", None)) is not None:
        from common.layers import scores

        scores.install(model, scale, absent)
    return model


def usable_positions(config: PreTrainedConfig, decoder: bool = False) -> int:
    """How many tokens a model can read, or its `decoder` write; -1 without an end, as of T5 and XLNet.

    RoBERTa and its kin count positions from the one after their padding's: the table says so.
    """
    names = f"max_{'decoder' if decoder else 'encoder'}_position_embeddings", "max_position_embeddings"
    count = next(filter(None, (getattr(config, name, None) for name in names)), -1)
    modules: dict[str, Any] = {}
    with contextlib.suppress(Exception), torch.device("meta"):  # whoever loads it says what is wrong
        modules = dict(build(copy.deepcopy(config), AutoModel).named_modules()) if count > 0 else {}
    for name, table in modules.items():
        if "position" in name and getattr(table, "padding_idx", None) is not None and hasattr(table, "weight"):
            count = min(count, len(table.weight) - table.padding_idx - 1)
    return count


@torch.no_grad()
def fold_head(model: nn.Module) -> None:
    """Put the scale of a head of scores into its weights, in place, with the same answers."""
    head: Any
    for head in model.modules():
        if hasattr(head, "fold_scale"):
            head.fold_scale()


def no_hidden_states(model: PreTrainedModel) -> NoReturn:
    """Refuse a loss on hidden states of an encoder-decoder that labels texts: it has two stacks."""
    raise BadInput(
        f"--teacher: the hidden states of a {model.config.model_type} that labels texts are not compared; rows that"
        " learn from outputs alone work, such as kd of cmow.py and cka.py"
    )


def is_decoder(family: str) -> bool:
    """Whether a family has language models and no masked ones: its classifiers read the last token."""
    return family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and family not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


# --- what a model predicts -----------------------------------------------------------------------------------


class HiddenStates(dict[int, Tensor]):
    """By layer, (B, L, D): those that were asked for, whether the teacher is run or read from disk."""

    def __missing__(self, layer: int) -> Tensor:
        there = ", ".join(map(str, self)) or "none"
        raise BadInput(f"the teacher's hidden states of layer {layer} were not asked for; those that were: {there}")


def vectors(hidden: Tensor, mask: Tensor, tokens: str = "all", family: str = "bert") -> Tensor:
    """(B, L, D) hidden states -> (n, D), those of "all" tokens of the (B, L) mask, or of "cls", the one of a row that
    classifiers read: the first, or of a decoder, and of XLNet, the last."""
    if tokens == "cls":
        at = mask.shape[1] - 1 - mask.long().flip(1).argmax(1) if is_decoder(family) else mask.long().argmax(1)
        mask = F.one_hot(at, mask.shape[1])
    return hidden.flatten(0, 1).index_select(0, mask.flatten().nonzero()[:, 0])  # of `hidden[mask]` faster backward


# --- sizes and files -------------------------------------------------------------------------


def checkpoint_activations(model: Any) -> None:
    """Let a model keep a layer's inputs alone between its passes, and compute what is inside again."""
    if not model.supports_gradient_checkpointing:
        raise BadInput(f"--gradient-checkpointing: {model.config.model_type} does not support it; leave it out")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def inputs_of(model: nn.Module, names: Iterable[str]) -> list[str]:
    """Of a tokenizer's outputs those that the model reads: others, as token types of DistilBERT, mean nothing to it."""
    named = inspect.signature(model.forward).parameters
    return [name for name in names if name in named]


def shipped(tokenizer: Any, max_length: int | None = None, model: nn.Module | None = None) -> Any:
    """A tokenizer as it is saved: without the truncation and the padding of its last call, which its file would hold;
    where these are given with `max_length` as its limit, and with no output that the model does not read."""
    made = copy.copy(tokenizer)
    if model is not None and (read := inputs_of(model, made.model_input_names)) != made.model_input_names:
        made.model_input_names = read
        made.init_kwargs = made.init_kwargs | {"model_input_names": read}  # which is what is written
    made.init_kwargs |= {name: getattr(made, name) for name in ("padding_side", "truncation_side")}
    if made.is_fast:  # every call sets both anew
        made.backend_tokenizer.no_truncation()
        made.backend_tokenizer.no_padding()
    made.model_max_length = max_length or made.model_max_length
    return made


def save(model: PreTrainedModel, tokenizer: Any, folder: Path, card: str, max_length: int | None = None) -> int:
    """Write the Hugging Face layout (safetensors, tokenizer, model card); return the bytes of the weights.

    `max_length`: the tokens of an example that it was trained on. The main process alone writes.
    """
    if not parallel.main():
        return 0
    fold_head(model)
    folder.mkdir(parents=True, exist_ok=True)
    # in the layout of the family's oldest files, which put weights together that are packed apart
    model.save_pretrained(folder, save_original_format=not hasattr(model.config, "quantization_config"))
    mark_own(folder)
    shipped(tokenizer, max_length, model).save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    files = [*folder.glob("model*.safetensors"), *folder.glob("*/model.safetensors")]  # not the checkpoint's
    for file in files:
        apply_umask(file)
    return sum(f.stat().st_size for f in files)


# Beside weights and configuration, what decides the outputs of a checkpoint, of those files that are there
BESIDE = ("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model", "*.spm",
          "*.codes", "generation_config.json")  # fmt: skip


def file_digest(folder: Path, *beside: str) -> str:
    """Short SHA-256 of the weights and the configuration in a model folder, and of files of other names in it."""
    total = hashlib.sha256()
    others = sorted(path for pattern in beside for path in folder.glob(pattern))
    for path in [*sorted([*folder.glob("*.safetensors"), folder / "config.json"]), *others]:
        if path.exists():
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: total)
    return total.hexdigest()[:12]


def model_name(source: str, whole: bool = False) -> str:
    """What keys and signatures call a model: a pocket model as it is, a folder by its name and the digest of its
    weights and configuration, or of the `whole` checkpoint, a repository of the hub with its commit."""
    name, _ = parse_model(source)
    layers = source.removeprefix(name)
    if name in POCKET:
        return source
    if Path(name).is_dir():
        return f"{Path(name).name}@{file_digest(Path(name), *(BESIDE if whole else ()))}{layers}"
    from common.hub import model_commit

    commit = model_commit(name)
    return f"{name}@{commit[:12]}{layers}" if commit else source
