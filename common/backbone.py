"""The pocket suite's pre-trained BERTs: 4, 6 and 12 layers, 128 wide, masked-language modelling on unlabelled text.

    python -m common.backbone                 # trains the 4 layers again (20 minutes on two cores), common/pocket-bert/
    python -m common.backbone --layers 12     # goes on from them, 12 deep, common/pocket-bert-12/; also 6

They play the part of public checkpoints: pocket teachers are fine-tuned from them, and students of their width
can copy their first layers. The deeper ones start as copies of the 4 layers, stacked on each other, and are
trained further (progressive stacking, Gong et al. 2019), which costs a fraction of a start at random. The text is
the suite's unlabelled documents and the inputs of its training splits, all without labels; nothing of a dev or
test split. The weights are in the repository in half precision, each with a note of the command, the seed, the
generator's version then and the hashes that tie them together (`backbone.json`).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from transformers import BertConfig, BertForMaskedLM

from common import masked_lm, models, pocket, train
from common.results import write_json

WIDTH, HEADS = 128, 4
LAYERS = {layers: name for name, layers in models.POCKET_LAYERS.items()}
STEPS, BATCH, LR, MASKED, SEED = 8000, 64, 7e-4, 0.2, 0
STACKED_STEPS, STACKED_LR = 2000, 5e-4
INPUTS, DOCUMENTS, DEV = 40_000, 60_000, 1000  # examples per task; documents; documents held out


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
        # logits of the masked tokens alone: the output layer is most of a small model's work
        hidden = model.bert(**batch).last_hidden_state[labels >= 0]
        loss = F.cross_entropy(model.cls(hidden), labels[labels >= 0])
        loss.backward()
        clip_grad_norm_(model.parameters(), train.CLIP)
        optimizer.step()
        optimizer.zero_grad()
        ledger.count(batch)
        schedule.step()
        bar.update()
        losses.append(loss.item())
        if ledger.steps % 500 == 0:
            right, took = accuracy(model, tokenizer, held_out), time.time() - started
            print(
                f"step {ledger.steps}: loss {np.mean(losses[-500:]):.3f}, held-out {right:.3f}, {took:.0f} s",
                flush=True,
            )
    score = accuracy(model, tokenizer, held_out)
    model.half()
    command = "python -m common.backbone" + (f" --layers {layers}" if deeper else "")
    card = f"# The pocket suite's pre-trained BERT, {layers} layers\n\nMade by `{command}`.\n"
    models.save(model, tokenizer, folder, card)
    note = {
        "command": command,
        "seed": SEED,
        "steps": steps,
        "batch_size": BATCH,
        "generator_version": pocket.VERSION,
        "vocabulary_hash": vocabulary_hash(),
        "weights_hash": models.file_digest(folder),
        "held_out_masked_accuracy": round(score, 4),
        "seconds": round(time.time() - started),
    }
    write_json(folder / "backbone.json", note)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, choices=LAYERS, default=4)
    main(parser.parse_args().layers)
