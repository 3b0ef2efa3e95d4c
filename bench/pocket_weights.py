"""The pocket suite's pre-trained BERTs: 4, 6 and 12 layers, 128 wide, masked-language modelling on unlabelled text.

    python -m common.backbone                 # trains the 4 layers again (20 minutes on two cores), common/pocket-bert/
    python -m common.backbone --layers 12     # goes on from them, 12 deep, common/pocket-bert-12/; also 6
    python -m common.backbone --long          # goes on from them, 2,048 positions, common/pocket-bert-long/
    python -m common.backbone --asked         # goes on from the long one with questions, common/pocket-bert-asked/

They play the part of public checkpoints: pocket teachers are fine-tuned from them, and students of their width
can copy their first layers. The deeper ones start as copies of the 4 layers, stacked on each other, and are
trained further (progressive stacking, Gong et al. 2019), which costs a fraction of a start at random. The text is
the suite's unlabelled documents and the inputs of its training splits, without labels but for the asked one's
questions; nothing of a dev or test split.

The long one learns to look up what stands far away: in most of its blocks every sentence stands twice, at any two
places, so that a masked word can be read off the other copy, by whoever finds it. Blocks grow from 128 to 2,048 tokens,
since attention to one place among 2,048 is not found from scratch. Its positions are the 63 of the short one over and
over, plus slow waves, which tell near from far.

The asked one learns from there to read with a question in mind, which masks do not teach: a word that is not hidden
need not look for anything. A block asks several questions over the people of one document of hotpot, made of the train
split's sentences, and is told which words are answers and, on the way, which sentences a question needs: layers that
mark the first fact early have one left to find the second. One head of every layer but the first is shown what to
attend to, other places of the same word (as Strubell et al. 2018 showed one the syntax); without that, two facts were
not joined in 400 steps of any arrangement that was tried. Every third batch is masked text. A document's last third may
have positions far from the rest (as in Zhu et al. 2023), so that most steps read short blocks. It costs the long one's
skill at masked words, so ner keeps that one.

The weights are in the repository in half precision, each with a note of the command, the seed, the
generator's version then and the hashes that tie them together (`backbone.json`).
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from transformers import BertConfig, BertForMaskedLM

from common import masked_lm, models, pocket, train
from common.pocket.documents import Person, spread
from common.results import write_json

WIDTH, HEADS = 128, 4
LAYERS = {layers: name for name, layers in models.POCKET_LAYERS.items()}
STEPS, BATCH, LR, MASKED, SEED = 8000, 64, 7e-4, 0.2, 0
STACKED_STEPS, STACKED_LR = 2000, 5e-4
INPUTS, DOCUMENTS, DEV = 40_000, 60_000, 1000  # examples per task; documents; documents held out
# The long one: tokens of a block, and steps; a batch is of LONG_TOKENS tokens
LONG_STAGES = ((128, 600), (256, 200), (512, 250), (1024, 200), (2048, 150))
LONG_TOKENS, LONG_LR, LONG_MASKED, LONG_INPUTS = 4096, 1e-3, 0.25, 6000
TWICE = 0.8  # the share of its blocks in which every sentence stands twice
# The asked one: words of a block, and steps; every third batch is masked text
ASKED_STAGES = ((48, 550), (80, 150), (160, 300), (512, 80), (2000, 30))
MASKED_EVERY = 3
ROOMY = 64  # words of a block from which on it holds more than its questions need
MEAN_WORDS, SLACK = 5, 40  # half a sentence; what a block may be longer than asked for
RARE = 3  # other places at which a word may stand that is to be looked for
MARKS = (0.5, 0.5, 1.0)  # weights of the last layers, that are to find the facts early
WAVES, SLOWEST, HEIGHT = 12, (100, 16_000), 0.05  # that tell its positions apart: how many, their periods, their size


def config(vocab_size: int, layers: int) -> BertConfig:
    """Narrow layers want larger first weights than BERT's 0.02, which is made for a width of 768."""
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=128,
        initializer_range=0.05,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def vocabulary_hash() -> str:
    return hashlib.sha256("\n".join(pocket.vocabulary()).encode()).hexdigest()[:16]


def texts(inputs: int = INPUTS, documents: int = DOCUMENTS) -> dict[str, list[tuple[str, ...]]]:
    """Kind of text -> inputs of one or two texts: the unlabelled documents, and each task's training inputs."""
    found: dict[str, list[tuple[str, ...]]] = {"documents": [(t,) for t in pocket.unlabelled(documents, seed=1)]}
    for task in pocket.TASKS:
        rows = pocket.generate(task, "train", inputs)
        found[task] = list(zip(*(rows[column] for column in pocket.COLUMNS[task]), strict=True))
    return found


def mask(inputs: dict[str, Tensor], tokenizer: Any, generator: torch.Generator, share: float = MASKED) -> Tensor:
    """BERT's masking (`masked_lm.hide`), in place: every token has the chance `share` to be chosen. Labels (B, L)."""
    ids = inputs["input_ids"]
    chosen = (torch.rand(ids.shape, generator=generator) < share) & (ids >= len(models.SPECIAL_TOKENS))
    dice = torch.rand(ids.shape, generator=generator)
    other = torch.randint(len(models.SPECIAL_TOKENS), len(tokenizer), ids.shape, generator=generator)
    return masked_lm.hide(ids, chosen, dice, other, tokenizer.mask_token_id)


def batch_of(tokenizer: Any, chosen: list[tuple[str, ...]]) -> dict[str, Tensor]:
    columns = [list(column) for column in zip(*chosen, strict=True)]
    return dict(tokenizer(*columns, truncation="longest_first", max_length=64, padding=True, return_tensors="pt"))


@torch.no_grad()
def accuracy(model: BertForMaskedLM, tokenizer: Any, held_out: list[tuple[str, ...]]) -> float:
    """Share of masked tokens of held-out text that are predicted exactly."""
    generator = torch.Generator().manual_seed(0)
    right, total = 0, 0
    model.eval()
    for start in range(0, len(held_out), BATCH):
        inputs = batch_of(tokenizer, held_out[start : start + BATCH])
        labels = mask(inputs, tokenizer, generator)
        found = model(**inputs).logits.argmax(-1)
        right += int((found == labels).sum())
        total += int((labels >= 0).sum())
    model.train()
    return right / total


def masked_step(
    model: BertForMaskedLM, batch: dict[str, Tensor], labels: Tensor, optimizer: torch.optim.Optimizer
) -> float:
    """One step of masked language modelling; its loss."""
    masked = labels >= 0
    loss = F.cross_entropy(masked_lm.logits_at(model, batch, masked), labels[masked])
    loss.backward()
    clip_grad_norm_(model.parameters(), train.CLIP)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def stacked(model: BertForMaskedLM, base: BertForMaskedLM) -> None:
    """Give `model` the weights of the shallower `base`, whose layers are repeated from the first on."""
    depth = base.config.num_hidden_layers
    weights = base.state_dict()
    for name in model.state_dict():
        head, layer, rest = name.partition("encoder.layer.")
        if layer:
            number, _, rest = rest.partition(".")
            weights[name] = weights[f"{head}{layer}{int(number) % depth}.{rest}"]
    model.load_state_dict(weights)


def main(layers: int = 4, steps: int | None = None, folder: Path | None = None, inputs: int = INPUTS,
         documents: int = DOCUMENTS) -> None:  # fmt: skip
    started = time.time()
    train.seed_everything(SEED)
    folder = folder or models.POCKET[LAYERS[layers]]
    tokenizer = models.pocket_tokenizer()
    model = BertForMaskedLM(config(len(tokenizer), layers)).train()
    deeper = layers > min(LAYERS)
    if deeper:
        stacked(
            model, BertForMaskedLM.from_pretrained(models.POCKET["pocket"], use_safetensors=True, dtype=torch.float32)
        )
    steps = steps or (STACKED_STEPS if deeper else STEPS)
    pool = texts(inputs, documents)
    held_out: list[tuple[str, ...]] = [(text,) for text in pocket.unlabelled(DEV, seed=2)]
    kinds, rng, generator = list(pool), random.Random(SEED), torch.Generator().manual_seed(SEED)
    optimizer = train.adamw(model, STACKED_LR if deeper else LR)
    ledger = train.Ledger()
    schedule = train.Schedule(optimizer, ledger, steps, None)
    bar = train.progress(steps, "pre-training")
    losses: list[float] = []
    while schedule.running():
        # a batch holds one kind of text, so that its lengths are alike; documents come up as often as two tasks
        kind = rng.choice([*kinds, "documents"])
        batch = batch_of(tokenizer, rng.choices(pool[kind], k=BATCH))
        labels = mask(batch, tokenizer, generator)
        losses.append(masked_step(model, batch, labels, optimizer))
        ledger.count(batch)
        schedule.step()
        bar.update()
        if ledger.steps % 500 == 0:
            right, took = accuracy(model, tokenizer, held_out), time.time() - started
            print(
                f"step {ledger.steps}: loss {np.mean(losses[-500:]):.3f}, held-out {right:.3f}, {took:.0f} s",
                flush=True,
            )
    score = accuracy(model, tokenizer, held_out)
    command = "python -m common.backbone" + (f" --layers {layers}" if deeper else "")
    save(model, tokenizer, folder, f"{layers} layers", command, steps, BATCH, score, started)


def save(model: BertForMaskedLM, tokenizer: Any, folder: Path, what: str, command: str, steps: int, batch_size: int,
         score: float, started: float) -> None:  # fmt: skip
    """Weights in half precision, and the note that says how they were made."""
    model.half()
    card = f"# The pocket suite's pre-trained BERT, {what}\n\nMade by `{command}`.\n"
    models.save(model, tokenizer, folder, card)
    note = {
        "command": command,
        "seed": SEED,
        "steps": steps,
        "batch_size": batch_size,
        "generator_version": pocket.VERSION,
        "vocabulary_hash": vocabulary_hash(),
        "weights_hash": models.file_digest(folder),
        "held_out_masked_accuracy": round(score, 4),
        "seconds": round(time.time() - started),
    }
    write_json(folder / "backbone.json", note)


# --- long documents ------------------------------------------------------------------------------------------


def waved(model: BertForMaskedLM, rows: int) -> None:
    """Give the short BERT so many positions: those it was trained on over and over, and on top of them slow waves in
    random directions, so that places far apart differ and places side by side do not."""
    models.lengthen(model, rows, kept=1, trained=models.POCKET_TRAINED)
    table = model.bert.embeddings.position_embeddings.weight
    shortest, longest = map(math.log10, SLOWEST)
    periods = torch.logspace(shortest, longest, WAVES)
    angles = 2 * math.pi * torch.arange(rows)[:, None] / periods
    waves = torch.cat([angles.sin(), angles.cos()], dim=1) @ torch.randn(2 * WAVES, WIDTH) / math.sqrt(2 * WAVES)
    with torch.no_grad():
        table += HEIGHT * waves


def long_texts(tokenizer: Any, inputs: int, seed: int) -> list[list[list[int]]]:
    """Documents of several sentences, as ids: the unlabelled ones, and the inputs of the training splits of ner, squad
    and hotpot, questions in front."""
    rows: list[list[str]] = [sentences(text) for text in pocket.unlabelled(inputs, seed=seed)]
    for task in pocket.DOCUMENTS:
        columns = pocket.generate(task, "train", inputs, seed=seed)
        rows += [
            [sentence for text in texts for sentence in sentences(text)]
            for texts in zip(*(columns[name] for name in pocket.COLUMNS[task]), strict=True)
        ]
    return [tokenizer(row, add_special_tokens=False)["input_ids"] for row in rows]


def sentences(text: str) -> list[str]:
    return re.split(r"(?<= [.?]) ", text.replace("\n", " "))


def long_block(rng: random.Random, documents: list[list[list[int]]], words: int) -> list[int]:
    """So many ids: runs of one to four sentences of any documents, every one twice, in any order; or documents."""
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
    room = (models.POCKET_LONG - length) // (models.POCKET_TRAINED - 1)  # whole rounds: the waves alone move
    shift = torch.tensor([[rng.randint(0, room)] for _ in range(count)]) * (models.POCKET_TRAINED - 1)
    places[:, 1:] += shift
    return batch | {"position_ids": places}


@torch.no_grad()
def long_accuracy(model: BertForMaskedLM, tokenizer: Any, documents: list[list[list[int]]], batches: int = 10) -> float:
    """Share of masked tokens of held-out blocks of full length that are predicted exactly."""
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    right, total = 0, 0
    model.eval()
    for _ in range(batches):
        batch = long_batch(tokenizer, rng, documents, models.POCKET_LONG)
        labels = mask(batch, tokenizer, generator, LONG_MASKED)
        right += int((model(**batch).logits.argmax(-1) == labels).sum())
        total += int((labels >= 0).sum())
    model.train()
    return right / total


def growing(
    stages: tuple[tuple[int, int], ...], optimizer: torch.optim.Optimizer, said: Callable[[], str], started: float
) -> Iterator[tuple[int, int]]:
    """The step and its length, of every step of all stages; in between the learning rate is set, and what `said` says
    is printed every 50 steps."""
    lengths = [length for length, count in stages for _ in range(count)]
    ledger = train.Ledger()
    schedule = train.Schedule(optimizer, ledger, len(lengths), None)
    bar = train.progress(len(lengths), "pre-training")
    for step, length in enumerate(lengths):
        yield step, length
        ledger.steps += 1
        schedule.step()
        bar.update()
        if ledger.steps % 50 == 0:
            print(f"step {ledger.steps}, {length} tokens: {said()}, {time.time() - started:.0f} s", flush=True)


def main_long(stages: tuple[tuple[int, int], ...] = LONG_STAGES, folder: Path | None = None,
              inputs: int = LONG_INPUTS) -> None:  # fmt: skip
    started = time.time()
    train.seed_everything(SEED)
    tokenizer = models.pocket_tokenizer()
    tokenizer.model_max_length = models.POCKET_LONG
    model = BertForMaskedLM.from_pretrained(models.POCKET["pocket"], use_safetensors=True, dtype=torch.float32).train()
    waved(model, models.POCKET_LONG)
    documents, held_out = (long_texts(tokenizer, count, seed) for count, seed in ((inputs, 1), (inputs // 20, 2)))
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    optimizer = train.adamw(model, LONG_LR)
    losses: list[float] = []
    for _, length in growing(stages, optimizer, lambda: f"loss {np.mean(losses[-50:]):.3f}", started):
        batch = long_batch(tokenizer, rng, documents, length)
        labels = mask(batch, tokenizer, generator, LONG_MASKED)
        losses.append(masked_step(model, batch, labels, optimizer))
    score = long_accuracy(model, tokenizer, held_out)
    what = f"{model.config.num_hidden_layers} layers, {models.POCKET_LONG} positions"
    save(model, tokenizer, folder or models.POCKET_LONG_FOLDER, what, "python -m common.backbone --long",
         sum(count for _, count in stages), LONG_TOKENS, score, started)  # fmt: skip


# --- questions over documents --------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A block of questions and of the document that answers them."""

    tokens: list[int]
    context: int  # where the document begins
    places: list[int]  # the position of every token
    marks: list[float]  # of a token of a fact, whether a question needs it; NaN of all others
    answers: list[float]  # of a word that could be an answer, whether it is one; NaN of all others


def asked_block(rng: random.Random, tokenizer: Any, people: list[Person], fillers: list[str], words: int) -> Asked:
    """Questions of one kind about some of the people, and so many words in which all of them are told of. A short block
    leaves out what its kind of question does not need. The last third of the document may stand far off."""
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
    context, first = len(tokens), models.POCKET_TRAINED - 1
    places, unknown = list(range(context)), [math.nan] * context
    marks, answers = list(unknown), list(unknown)
    # whole rounds of the short BERT's positions are left out: the waves alone move
    room = (models.POCKET_LONG - words - SLACK) // first
    shifts = sorted(rng.randint(0, room) for _ in range(2))
    parts = spread(rng, facts, rest)
    for shift, part in zip((shifts[0], shifts[0], shifts[1]), parts, strict=True):
        for told, answer, needed in part:
            fact = (told, answer, needed) not in rest
            for word in told.split(" "):
                places.append(len(tokens) + shift * first)
                tokens.append(word)
                marks.append(float(needed) if fact else math.nan)
                answers.append(float(needed) if word == answer else math.nan)
    return Asked(tokenizer.convert_tokens_to_ids(tokens), context, places, marks, answers)


def asked_batch(tokenizer: Any, blocks: list[Asked]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Inputs of the blocks, each as long as the longest, and their marks and answers, (B, L)."""
    batch = dict(tokenizer.pad({"input_ids": [block.tokens for block in blocks]}, return_tensors="pt"))
    length = batch["input_ids"].shape[1]

    def padded(rows: list[list[Any]], value: float) -> Tensor:
        return torch.tensor([row + [value] * (length - len(row)) for row in rows])

    types = [[0] * block.context + [1] * (len(block.tokens) - block.context) for block in blocks]
    batch |= {"token_type_ids": padded(types, 0), "position_ids": padded([block.places for block in blocks], 0)}
    return batch, padded([b.marks for b in blocks], math.nan), padded([b.answers for b in blocks], math.nan)


def same_word_loss(ids: Tensor, attentions: Sequence[Tensor]) -> Tensor:
    """- log of the attention that words which stand a few times in a block pay to their other places, in the first
    head of the given layers; ids (B, L), attentions of (B, H, L, L)."""
    same = (ids[:, :, None] == ids[:, None, :]) & ~torch.eye(ids.shape[1], dtype=torch.bool)
    count = same.sum(-1)
    rare = (count > 0) & (count <= RARE) & (ids >= len(models.SPECIAL_TOKENS))
    paid = [(attention[:, 0] * same).sum(-1)[rare] for attention in attentions]
    return torch.stack([-(share + 1e-6).log().mean() for share in paid]).mean()


class Marker(nn.Module):
    """What is read off the hidden states while questions are learnt, and thrown away after it."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.marks = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in range(layers))
        self.answer = nn.Linear(WIDTH, 1)

    def loss(self, states: Sequence[Tensor], marks: Tensor, answers: Tensor) -> tuple[Tensor, float]:
        """Are facts needed, by the states (B, L, d) of each layer; and words the answers, by the last; and the share
        of those that are told rightly."""
        fact, word = ~marks.isnan(), ~answers.isnan()
        total: Tensor = sum(  # type: ignore[assignment]
            weight * F.binary_cross_entropy_with_logits(mark(state[fact])[:, 0], marks[fact])
            for weight, mark, state in zip(MARKS, self.marks, states, strict=True)
        )
        score = self.answer(states[-1][word])[:, 0]
        right = ((score > 0) == (answers[word] > 0)).float().mean().item()
        return total + F.binary_cross_entropy_with_logits(score, answers[word]), right


def main_asked(stages: tuple[tuple[int, int], ...] = ASKED_STAGES, folder: Path | None = None,
               inputs: int = LONG_INPUTS) -> None:  # fmt: skip
    started = time.time()
    train.seed_everything(SEED)
    tokenizer = models.pocket_tokenizer()
    tokenizer.model_max_length = models.POCKET_LONG
    model = BertForMaskedLM.from_pretrained(
        models.POCKET_LONG_FOLDER, use_safetensors=True, dtype=torch.float32, attn_implementation="eager"
    ).train()
    marker = Marker(len(MARKS))
    people = pocket.people(inputs, seed=1)
    documents, held_out = (long_texts(tokenizer, count, seed) for count, seed in ((inputs, 1), (inputs // 20, 2)))
    known = {word for group in people for person in group for word in (person.name, person.city)}
    texts = pocket.generate("squad", "train", inputs, seed=1)["context"]
    fillers = [told for text in texts for told in sentences(text) if known.isdisjoint(told.split(" "))]
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    optimizer = train.adamw(model, LONG_LR, list(marker.parameters()))
    shares: list[float] = []
    for step, length in growing(stages, optimizer, lambda: f"{np.mean(shares[-30:]):.3f} told rightly", started):
        if step % MASKED_EVERY == MASKED_EVERY - 1:  # what it could before is kept
            batch = long_batch(tokenizer, rng, documents, max(length, LONG_STAGES[0][0]))
            labels = mask(batch, tokenizer, generator, LONG_MASKED)
            masked_step(model, batch, labels, optimizer)
        else:
            blocks = [
                asked_block(rng, tokenizer, rng.choice(people), fillers, length) for _ in range(LONG_TOKENS // length)
            ]
            batch, marks, answers = asked_batch(tokenizer, blocks)
            out = model.bert(**batch, output_hidden_states=True, output_attentions=True)
            loss, right = marker.loss(out.hidden_states[-len(MARKS) :], marks, answers)
            loss = loss + same_word_loss(batch["input_ids"], out.attentions[-len(MARKS) :])
            loss.backward()
            clip_grad_norm_([*model.parameters(), *marker.parameters()], train.CLIP)
            optimizer.step()
            optimizer.zero_grad()
            shares.append(right)
    score = long_accuracy(model, tokenizer, held_out)
    what = f"{model.config.num_hidden_layers} layers, {models.POCKET_LONG} positions, asked"
    save(model, tokenizer, folder or models.POCKET_ASKED_FOLDER, what, "python -m common.backbone --asked",
         sum(count for _, count in stages), LONG_TOKENS, score, started)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, choices=LAYERS, default=4)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--asked", action="store_true")
    options = parser.parse_args()
    if options.asked:
        main_asked()
    elif options.long:
        main_long()
    else:
        main(options.layers)
