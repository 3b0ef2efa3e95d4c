"""Makes the shipped weights of the pocket suite: BERTs of 4, 6 and 12 layers of 128, pre-trained on the suite's text,
and teachers that were fine-tuned from them.

    python -m pocket.make                 # 4 layers (40 minutes on two cores): pocket/bert/
    python -m pocket.make --layers 12     # goes on from them, 12 deep: pocket/bert-12/; also 6
    python -m pocket.make --long          # goes on from them, 2,048 positions: pocket/bert-long/
    python -m pocket.make --asked         # goes on from the long one: pocket/bert-asked/
    python -m pocket.make --teachers      # fine-tunes them as the scripts do: pocket/teachers/
    python -m pocket.make --teachers pocket-cola pocket-6-stsb    # some of them, 4 to 18 minutes each

They play the part of public checkpoints: pocket teachers are fine-tuned from them, and students of their width can copy
their first layers. All learn by masked language modelling of unlabelled documents and of the inputs of the training
splits, without labels. The documents belong to no split: test sentences of some tasks stand in them, as in text of the
web (docs/pocket.md). The deeper ones start as copies of the 4 layers, stacked on each other (progressive stacking, Gong
et al. 2019), which costs a fraction of a start at random.

The long one learns to look up what stands far away. In most of its blocks every sentence stands twice, at any two
places, so that a masked word can be read off the other copy. Blocks grow from 128 to 2,048 tokens, since attention to
one place among 2,048 is not learnt from scratch. Its positions are the 63 of the short one, repeated, plus slow waves,
which tell near from far.

The asked one learns to read with a question in mind, which masks do not teach: a word that is not hidden need not look
for anything. A block asks several questions about the people of one document of hotpot, made of sentences of the train
split. Two kinds of labels help: which words are answers, and which sentences a question needs; layers that mark the
first fact early have one left to find the second. One head of every layer but the first is shown what to attend to,
other places of the same word (as Strubell et al. 2018 showed one the syntax); without that, two facts were not joined
in 400 steps of any arrangement that was tried. Every third batch is masked text. The last third of a document may have
positions far from the rest (as in Zhu et al. 2023), so that most steps read short blocks. It costs the long one's skill
at masked words, so ner keeps that one.

Teachers are folders of the library with weights of 8 bits (common/layers/packed.py) and the rest in half precision,
each with a note of its recipe and of its scores before and after (`teacher.json`); the others in half precision, each
with a note (`backbone.json`). Notes hold the command, the generator's version and the hashes that tie all together. The
weights' files of today's teachers hold their tokenizer too, as an old format had it: nothing reads it, but their hash,
which signatures of results hold, is of all of their bytes.

Shapes: B batch, L length (tokens), H heads, d width.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedModel, set_seed

import pocket
from common import data, models
from common.args import CommonArgs
from common.evaluate import evaluate
from common.layers import packed
from common.masking import hide, logits_at
from common.results import write_json
from common.teacher import get_teacher
from common.train import NOTE, Batch, Loop
from pocket import models as suite
from pocket.documents import Person, spread
from pocket.models import POCKET_LONG, POCKET_TRAINED, SPECIAL_TOKENS, WIDTH

SEED = 0
LAYERS = {str(layers): name for name, layers in suite.POCKET_LAYERS.items()}
STEPS, BATCH, LR, MASKED = 8000, 64, 7e-4, 0.2
STACKED_STEPS, STACKED_LR = 2000, 5e-4
PRETRAINED = tuple(task for task in pocket.TASKS if task != "grammar")  # whose texts the BERTs have read
INPUTS, DOCUMENTS, DEV = 40_000, 60_000, 1000  # examples of a task; documents; documents held out
Stages = tuple[tuple[int, int], ...]  # words of a block, and steps
# The long one; a batch has LONG_TOKENS tokens
LONG_STAGES: Stages = ((128, 600), (256, 200), (512, 250), (1024, 200), (2048, 150))
LONG_TOKENS, LONG_LR, LONG_MASKED, LONG_INPUTS = 4096, 1e-3, 0.25, 6000
TWICE = 0.8  # the share of its blocks in which every sentence stands twice
WAVES, PERIODS, HEIGHT = 12, (100, 16_000), 0.05  # how many slow waves; the shortest and longest period; their height
# The asked one
ASKED_STAGES: Stages = ((48, 550), (80, 150), (160, 300), (512, 80), (2000, 30))
MASKED_EVERY = 3  # batches, of which one is masked text
ROOMY = 64  # words of a block from which on it holds more than its questions need
MEAN_WORDS, SLACK = 5, 40  # half a sentence; words that a block may have beyond its length
RARE = 3  # other places at which a word may stand that is to be looked for
MARKS = (0.5, 0.5, 1.0)  # weights of the last layers, which are to find the facts early


class Recipe(NamedTuple):
    """A training: its modules, of which "model" is kept, what makes the batch of a step, the loss, and its length."""

    modules: dict[str, nn.Module]
    draw: Callable[[int], dict[str, Tensor]]
    loss: Callable[[Batch], Tensor]
    steps: int
    lr: float


class Drawn:
    """The batches that a recipe draws one after the other. None is a function of its step alone, so a training that
    was stopped starts again."""

    def __init__(self, recipe: Recipe) -> None:
        self.draw = recipe.draw

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        batch = self.draw(step)
        self.rows = len(batch["input_ids"])
        return batch

    def ids(self, step: int) -> list[str]:
        return [f"{step}-{row}" for row in range(self.rows)]


def make(name: str, folder: Path) -> None:
    """Train "4", "6" or "12" layers, "long" or "asked"; write the weights in half precision, and how they were made."""
    started = time.time()
    set_seed(SEED)
    tokenizer, short = suite.pocket_tokenizer(), name in LAYERS
    if not short:
        tokenizer.model_max_length = POCKET_LONG
    long = long_recipe if name == "long" else asked_recipe
    recipe = layers_recipe(tokenizer, int(name)) if short else long(tokenizer)
    modules, _, loss, steps, lr = recipe
    with tempfile.TemporaryDirectory() as training:
        loop = Loop(modules, Drawn(recipe), steps, lr, Path(training), "", label="pre-training", save_every=math.inf)
        with loop:
            for batch in loop:
                loop.minimise(loss(batch))
    model: Any = modules["model"]
    score = short_accuracy(model, tokenizer) if short else long_accuracy(model, tokenizer)
    option = "" if name == "4" else f" --layers {name}" if short else f" --{name}"
    command = f"python -m pocket.make{option}"
    card = f"# The pocket suite's pre-trained BERT: {folder.name}\n\nMade by `{command}`.\n"
    models.save(model.half(), tokenizer, folder, card)
    note = {
        "command": command,
        "seed": SEED,
        "steps": steps,
        "batch_size": BATCH if short else LONG_TOKENS,
        "generator_version": pocket.VERSION,
        "vocabulary_hash": vocabulary_hash(),
        "weights_hash": models.file_digest(folder),
        "held_out_masked_accuracy": round(score, 4),
        "seconds": round(time.time() - started),
    }
    write_json(folder / "backbone.json", note)


def vocabulary_hash() -> str:
    return hashlib.sha256("\n".join(pocket.vocabulary()).encode()).hexdigest()[:16]


# --- masked text ---------------------------------------------------------------------------------------------


def config(vocab_size: int, layers: int) -> BertConfig:
    return BertConfig(
        vocab_size=vocab_size, hidden_size=WIDTH, num_hidden_layers=layers, num_attention_heads=suite.HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=suite.POSITIONS,
        initializer_range=suite.INITIALIZER_RANGE, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip


def pretrained(folder: Path, attention: str = "sdpa") -> BertForMaskedLM:
    return BertForMaskedLM.from_pretrained(
        folder, use_safetensors=True, dtype=torch.float32, attn_implementation=attention
    )


def texts(inputs: int, documents: int) -> dict[str, list[tuple[str, ...]]]:
    """Kind of text -> inputs of one or two texts: the unlabelled documents, and each task's training inputs."""
    kinds: dict[str, list[tuple[str, ...]]] = {"documents": [(t,) for t in pocket.unlabelled(documents, seed=1)]}
    for task in PRETRAINED:
        rows = pocket.generate(task, "train", inputs)
        kinds[task] = list(zip(*(rows[column] for column in pocket.COLUMNS[task]), strict=True))
    return kinds


def masked(inputs: dict[str, Tensor], tokenizer: Any, generator: torch.Generator, share: float) -> dict[str, Tensor]:
    """The inputs with BERT's masking (`masking.hide`), where every word has the chance `share`, and labels (B, L)."""
    ids = inputs["input_ids"]
    chosen = (torch.rand(ids.shape, generator=generator) < share) & (ids >= len(SPECIAL_TOKENS))
    dice = torch.rand(ids.shape, generator=generator)
    other = torch.randint(len(SPECIAL_TOKENS), len(tokenizer), ids.shape, generator=generator)
    return inputs | {"labels": hide(ids, chosen, dice, other, tokenizer.mask_token_id)}


def short_batch(tokenizer: Any, rows: Sequence[tuple[str, ...]]) -> dict[str, Tensor]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return dict(tokenizer(*columns, truncation="longest_first", max_length=64, padding=True, return_tensors="pt"))


def masked_loss(model: BertForMaskedLM, batch: Batch) -> Tensor:
    """The mean cross-entropy of the hidden words."""
    hidden = batch.labels >= 0
    return F.cross_entropy(logits_at(model, batch.inputs, hidden), batch.labels[hidden])


@torch.no_grad()
def accuracy(model: BertForMaskedLM, batches: Iterable[dict[str, Tensor]]) -> float:
    """The share of hidden words that are predicted exactly."""
    right = total = 0
    model.eval()
    for batch in batches:
        labels = batch.pop("labels")
        right += int((model(**batch).logits.argmax(-1) == labels).sum())
        total += int((labels >= 0).sum())
    return right / total


def short_accuracy(model: BertForMaskedLM, tokenizer: Any, count: int = DEV) -> float:
    """That of so many short documents, which were held out."""
    rows = [(document,) for document in pocket.unlabelled(count, seed=2)]
    generator = torch.Generator().manual_seed(0)
    batches = (short_batch(tokenizer, rows[start : start + BATCH]) for start in range(0, count, BATCH))
    return accuracy(model, (masked(batch, tokenizer, generator, MASKED) for batch in batches))


def stack(model: BertForMaskedLM, base: BertForMaskedLM) -> None:
    """Give `model` the weights of the shallower `base`, whose layers are repeated from the first on."""
    depth = base.config.num_hidden_layers
    weights = base.state_dict()
    for name in model.state_dict():
        head, layer, rest = name.partition("encoder.layer.")
        if layer:
            number, _, rest = rest.partition(".")
            weights[name] = weights[f"{head}{layer}{int(number) % depth}.{rest}"]
    model.load_state_dict(weights)


def layers_recipe(tokenizer: Any, layers: int) -> Recipe:
    model = BertForMaskedLM(config(len(tokenizer), layers))
    deeper = layers > suite.POCKET_LAYERS["pocket"]
    if deeper:
        stack(model, pretrained(suite.POCKET["pocket"]))
    pool = texts(INPUTS, DOCUMENTS)
    kinds, rng, generator = [*pool, "documents"], random.Random(SEED), torch.Generator().manual_seed(SEED)

    def draw(_step: int) -> dict[str, Tensor]:
        # a batch holds one kind of text, so that its lengths are alike; documents come up as often as two tasks
        rows = rng.choices(pool[rng.choice(kinds)], k=BATCH)
        return masked(short_batch(tokenizer, rows), tokenizer, generator, MASKED)

    steps, lr = (STACKED_STEPS, STACKED_LR) if deeper else (STEPS, LR)
    return Recipe({"model": model}, draw, partial(masked_loss, model), steps, lr)


# --- long documents ------------------------------------------------------------------------------------------


def lengthened(model: BertForMaskedLM, positions: int) -> BertForMaskedLM:
    """The short BERT with so many positions: those it was trained on, repeated, plus slow waves, which differ far apart
    and hardly at neighbouring places."""
    weights, name = model.state_dict(), "bert.embeddings.position_embeddings.weight"
    first, others = weights[name][:1], weights[name][1:POCKET_TRAINED]
    table = torch.cat([first, others.repeat(-(-positions // len(others)), 1)])[:positions]
    shortest, longest = map(math.log10, PERIODS)
    angles = 2 * math.pi * torch.arange(positions)[:, None] / torch.logspace(shortest, longest, WAVES)
    waves = torch.cat([angles.sin(), angles.cos()], dim=1) @ torch.randn(2 * WAVES, WIDTH) / math.sqrt(2 * WAVES)
    model.config.max_position_embeddings = positions
    long = BertForMaskedLM(model.config)
    long.load_state_dict(weights | {name: table + HEIGHT * waves})
    return long


def sentences(document: str) -> list[str]:
    return re.split(r"(?<= [.?]) ", document.replace("\n", " "))


def long_texts(tokenizer: Any, inputs: int, seed: int) -> list[list[list[int]]]:
    """Documents of several sentences, as ids: the unlabelled ones, and the training inputs of ner, squad and hotpot,
    questions in front."""
    rows = [sentences(document) for document in pocket.unlabelled(inputs, seed=seed)]
    for task in pocket.DOCUMENTS:
        columns = pocket.generate(task, "train", inputs, seed=seed)
        for parts in zip(*(columns[name] for name in pocket.COLUMNS[task]), strict=True):
            rows.append([sentence for part in parts for sentence in sentences(part)])
    return [tokenizer(row, add_special_tokens=False)["input_ids"] for row in rows]


def long_block(rng: random.Random, documents: list[list[list[int]]], words: int) -> list[int]:
    """So many ids: runs of one to four sentences of any documents, each sentence twice, in any order; or documents."""
    twice = rng.random() < TWICE
    chosen: list[list[int]] = []
    count, most = 0, words / 2 if twice else words
    while count < most:
        document = rng.choice(documents)
        start = rng.randrange(len(document)) if twice else 0
        for sentence in document[start : start + rng.randint(1, 4) if twice else None]:
            chosen.append(sentence)
            count += len(sentence)
    again = rng.sample(chosen, len(chosen)) if twice else []
    return [token for sentence in chosen + again for token in sentence][:words]


def long_batch(tokenizer: Any, rng: random.Random, documents: list[list[list[int]]], length: int) -> dict[str, Tensor]:
    """Blocks of `length` tokens that begin anywhere: all positions are trained, whatever the length."""
    count = LONG_TOKENS // length
    blocks = [long_block(rng, documents, length - 2) for _ in range(count)]
    ids = [[tokenizer.cls_token_id, *block, tokenizer.sep_token_id] for block in blocks]
    batch = dict(tokenizer.pad({"input_ids": ids}, return_tensors="pt"))
    places = torch.arange(batch["input_ids"].shape[1])[None].repeat(count, 1)
    room = (POCKET_LONG - length) // (POCKET_TRAINED - 1)  # whole rounds: only the waves differ
    places[:, 1:] += torch.tensor([[rng.randint(0, room)] for _ in range(count)]) * (POCKET_TRAINED - 1)
    return batch | {"position_ids": places}


def long_accuracy(model: BertForMaskedLM, tokenizer: Any, count: int = 10) -> float:
    """That of so many batches of blocks of full length, which were held out."""
    documents = long_texts(tokenizer, LONG_INPUTS // 20, seed=2)
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    batches = (long_batch(tokenizer, rng, documents, POCKET_LONG) for _ in range(count))
    return accuracy(model, (masked(batch, tokenizer, generator, LONG_MASKED) for batch in batches))


def long_recipe(tokenizer: Any) -> Recipe:
    model = lengthened(pretrained(suite.POCKET["pocket"]), POCKET_LONG)
    documents = long_texts(tokenizer, LONG_INPUTS, seed=1)
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    lengths = [length for length, steps in LONG_STAGES for _ in range(steps)]

    def draw(step: int) -> dict[str, Tensor]:
        return masked(long_batch(tokenizer, rng, documents, lengths[step]), tokenizer, generator, LONG_MASKED)

    return Recipe({"model": model}, draw, partial(masked_loss, model), len(lengths), LONG_LR)


# --- questions over documents --------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A block of questions and of the document that answers them; lists have an entry for each token."""

    tokens: list[int]
    context: int  # where the document begins
    places: list[int]  # positions
    marks: list[float]  # of a fact's tokens, whether a question needs the fact; NaN of all others
    answers: list[float]  # of a word that could be an answer, whether it is one; NaN of all others


def asked_block(rng: random.Random, tokenizer: Any, people: list[Person], fillers: list[str], words: int) -> Asked:
    """Questions of one kind about some of the people, and so many words in which all of them are told of.

    A short block leaves out what its kind of question does not need. The last third of the document may stand far off.
    """
    kind = rng.choice(("whom", "where", "both", "both"))
    roomy = words >= ROOMY
    chosen = people if roomy else rng.sample(people, 2 if kind == "both" else 3)
    asked = rng.sample(chosen, rng.randint(1, len(chosen) - 1))
    deeds = [(p.deed, p.name if kind == "whom" else "", kind != "where" and p in asked) for p in chosen]
    origins = [(p.origin, p.city if kind != "whom" else "", kind != "whom" and p in asked) for p in chosen]
    if not roomy:
        deeds, origins = ([] if kind == "where" else deeds), ([] if kind == "whom" else origins)
    facts = [deeds, origins]
    rng.shuffle(facts)
    question = " ".join(getattr(person, kind) for person in asked).split(" ")
    rest: list[tuple[str, str, bool]] = []
    count = len(question) + sum(told.count(" ") + 1 for told, *_ in deeds + origins)
    while roomy and count + MEAN_WORDS < words:
        told = rng.choice(fillers)
        if not any(person.clause in told for person in chosen):
            rest.append((told, "", False))
            count += told.count(" ") + 1
    tokens = [tokenizer.cls_token, *question, tokenizer.sep_token]
    context, rounds = len(tokens), POCKET_TRAINED - 1
    places, marks, answers = list(range(context)), [math.nan] * context, [math.nan] * context
    shifts = sorted(rng.randint(0, (POCKET_LONG - words - SLACK) // rounds) for _ in range(2))  # only the waves differ
    for shift, third in zip((shifts[0], shifts[0], shifts[1]), spread(rng, facts, rest), strict=True):
        for told, answer, needed in third:
            fact = (told, answer, needed) not in rest
            for word in told.split(" "):
                places.append(len(tokens) + shift * rounds)
                tokens.append(word)
                marks.append(float(needed) if fact else math.nan)
                answers.append(float(needed) if word == answer else math.nan)
    return Asked(tokenizer.convert_tokens_to_ids(tokens), context, places, marks, answers)


def asked_batch(tokenizer: Any, blocks: list[Asked]) -> dict[str, Tensor]:
    """The blocks, each as long as the longest; their marks, (B, L), are the labels, their answers stand beside them."""
    batch = dict(tokenizer.pad({"input_ids": [block.tokens for block in blocks]}, return_tensors="pt"))
    length = batch["input_ids"].shape[1]

    def padded(rows: list[list[Any]], value: float) -> Tensor:
        return torch.tensor([row + [value] * (length - len(row)) for row in rows])

    types = [[0] * block.context + [1] * (len(block.tokens) - block.context) for block in blocks]
    batch |= {"token_type_ids": padded(types, 0), "position_ids": padded([block.places for block in blocks], 0)}
    marks, answers = (padded([getattr(block, name) for block in blocks], math.nan) for name in ("marks", "answers"))
    return batch | {"labels": marks, "answers": answers}


def same_word_loss(ids: Tensor, attentions: Sequence[Tensor]) -> Tensor:
    """-log of the attention that a word which stands a few times in a block pays to its other places, in the first
    head: the mean over these words and the layers; ids (B, L), attentions of (B, H, L, L)."""
    same = (ids[:, :, None] == ids[:, None, :]) & ~torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device)
    count = same.sum(-1)
    rare = (count > 0) & (count <= RARE) & (ids >= len(SPECIAL_TOKENS))
    paid = [(attention[:, 0] * same).sum(-1)[rare] for attention in attentions]
    return torch.stack([-(share + 1e-6).log().mean() for share in paid]).mean()


class Marker(nn.Module):
    """Linear layers that read marks and answers off the hidden states; thrown away after the training."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in MARKS)
        self.answer = nn.Linear(WIDTH, 1)

    def loss(self, states: Sequence[Tensor], marks: Tensor, answers: Tensor) -> Tensor:
        """Binary cross-entropy of the marks, by the states (B, L, d) of each layer, and of the answers, by the last."""
        fact, word = ~marks.isnan(), ~answers.isnan()
        loss = F.binary_cross_entropy_with_logits
        facts: Tensor = sum(  # type: ignore[assignment]
            weight * loss(mark(state[fact])[:, 0], marks[fact])
            for weight, mark, state in zip(MARKS, self.marks, states, strict=True)
        )
        return facts + loss(self.answer(states[-1][word])[:, 0], answers[word])


def asked_loss(model: BertForMaskedLM, marker: Marker, batch: Batch) -> Tensor:
    """Of a batch of questions, marks, answers and attention; of masked text, the hidden words."""
    if "answers" not in batch.inputs:
        return masked_loss(model, batch)
    answers = batch.inputs.pop("answers")
    out = model.bert(**batch.inputs, output_hidden_states=True, output_attentions=True)
    loss = marker.loss(out.hidden_states[-len(MARKS) :], batch.labels, answers)
    return loss + same_word_loss(batch.inputs["input_ids"], out.attentions[-len(MARKS) :])


def asked_recipe(tokenizer: Any) -> Recipe:
    model, marker = pretrained(suite.POCKET_LONG_FOLDER, "eager"), Marker()
    people, documents = pocket.people(LONG_INPUTS, seed=1), long_texts(tokenizer, LONG_INPUTS, seed=1)
    known = {word for group in people for person in group for word in (person.name, person.city)}
    contexts = pocket.generate("squad", "train", LONG_INPUTS, seed=1)["context"]
    fillers = [told for context in contexts for told in sentences(context) if known.isdisjoint(told.split(" "))]
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    lengths = [length for length, steps in ASKED_STAGES for _ in range(steps)]

    def draw(step: int) -> dict[str, Tensor]:
        length = lengths[step]
        if step % MASKED_EVERY == MASKED_EVERY - 1:  # so that it keeps what it could before
            batch = long_batch(tokenizer, rng, documents, max(length, LONG_STAGES[0][0]))
            return masked(batch, tokenizer, generator, LONG_MASKED)
        count = LONG_TOKENS // length
        blocks = [asked_block(rng, tokenizer, rng.choice(people), fillers, length) for _ in range(count)]
        return asked_batch(tokenizer, blocks)

    modules = {"model": model, "marker": marker}
    return Recipe(modules, draw, partial(asked_loss, model, marker), len(lengths), LONG_LR)


# --- fine-tuned teachers ---------------------------------------------------------------------------------------

SHIPPED = [*(f"pocket-{task}" for task in pocket.TASKS if task != "qnli")]
SHIPPED += [f"pocket-6-{task}" for task in ("cola", "grammar", "stsb")]


@torch.no_grad()
def in_8_bits(model: PreTrainedModel) -> PreTrainedModel:
    """A fine-tuned BERT with packed linears and embeddings, in place, and all else in half precision: a linear has one
    scale, an embedding one for each row."""
    modules = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Embedding)}
    for name, module in modules.items():
        by_row = isinstance(module, nn.Embedding)
        largest = module.weight.abs().amax(-1, keepdim=True) if by_row else module.weight.abs().amax()
        scale = (largest / packed.LARGEST).clamp(min=packed.TINY)
        small = packed.empty(module, bits=8)
        small.load_state_dict({
            "packed": packed.pack((module.weight / scale).round(), 8), "scale": scale,
            **({} if by_row else {"bias": module.bias}),
        })  # fmt: skip
        model.set_submodule(name, small)
    for parameter in model.parameters():
        parameter.data = parameter.data.half()
    model.config.quantization_config = packed.PackedConfig(8, modules).to_dict()
    return model


def make_teacher(name: str, cache: str) -> None:
    """Fine-tune a teacher, such as "pocket-6-stsb", or find it in the scripts' cache; write its folder and its note."""
    teacher, _, task_name = name.rpartition("-")
    folder, task = suite.TEACHERS / name, data.load(f"pocket/{task_name}")
    (folder / suite.NOTE).unlink(missing_ok=True)  # else the shipped one would be taken
    made = get_teacher(CommonArgs(teacher=teacher, cache_dir=cache), task)
    cached = Path(cache, "teachers", made.signature.rpartition("#")[2])
    training = json.loads((cached / NOTE).read_text(encoding="utf-8"))
    card = f"# {name}\n\nMade by `python -m pocket.make --teachers {name}`; see `{suite.NOTE}`.\n"
    size = models.save(in_8_bits(made.model), made.tokenizer, folder, card)
    config = models.load_config(str(folder))
    model = packed.unpacked(models.load_model(str(folder), config, task.task.kind, head=True))
    note = {
        "command": f"python -m pocket.make --teachers {name}",
        "recipe": training["recipe"],
        "generator_version": pocket.VERSION,
        "backbone_hash": models.file_digest(suite.POCKET[teacher]),
        "hash": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:12],
        "bytes": size,
        "scores": made.metrics,
        "packed_scores": evaluate(model, made.tokenizer, task, training["recipe"]["max_length"]).metrics,
        "seconds": round(training["ledger"]["seconds"]),
    }
    write_json(folder / suite.NOTE, note)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--layers", dest="name", choices=LAYERS, default="4")
    which.add_argument("--long", dest="name", action="store_const", const="long")
    which.add_argument("--asked", dest="name", action="store_const", const="asked")
    which.add_argument("--teachers", nargs="*", metavar="NAME-TASK", help="default: all that are shipped")
    parser.add_argument("--cache-dir", default="runs/cache", help="where the scripts keep teachers")
    given = parser.parse_args(argv)
    if given.teachers is None:
        make(given.name, suite.FOLDER / f"bert-{given.name}".removesuffix("-4"))
    else:
        for name in given.teachers or SHIPPED:
            make_teacher(name, given.cache_dir)


if __name__ == "__main__":
    main(sys.argv[1:])
