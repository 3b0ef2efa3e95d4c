"""The embeddings of Mai et al. (2019), from which the CMOW paper's pretrained CBOW, CMOW and hybrid start.

    python -m bench word2mat hybrid.safetensors words.json --to runs/word2mat/hybrid
    python methods/cmow.py --student hybrid --init runs/word2mat/hybrid --task rte --teacher bert-base-uncased

Theirs (https://zenodo.org/record/3933322) are pickles, which hold code, so that this project does not read them. In a
checkout of https://github.com/florianmai/word2mat these lines write what is read here:

    encoder = torch.load("hybrid.encoder", map_location="cpu", weights_only=False)
    safetensors.torch.save_file(encoder.state_dict(), "hybrid.safetensors")
    json.dump(pickle.load(open("hybrid.vocab", "rb"))[0], open("words.json", "w"))

Words that are a token of the teacher's take over their row, a matrix less the identity, as methods/cmow.py keeps it
(by the paper 54% of BERT's tokens). The others are drawn as they are for a student that starts at random.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import set_seed

from bench.cli import Parser
from common import models
from common.errors import BadInput, refused
from methods import cmow


def tables_of(weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Rows of vectors (words + 1, d) and of matrices (words + 1, s s); one of them of width 0 for CBOW and CMOW."""
    found = {name.removesuffix("lookup_table.weight"): weight.float() for name, weight in weights.items()}
    if found.keys() == {"cbow_encoder.", "cmow_encoder."}:
        return found["cbow_encoder."], found["cmow_encoder."]
    if found.keys() != {""}:
        raise BadInput(f"the file holds {', '.join(weights)}; lookup_table.weight, or a hybrid's two, are needed")
    (table,) = found.values()
    # CMOW's row 0, its padding, is the identity; CBOW's is zero
    matrices = bool(table[0].any())
    return (table[:, :0], table) if matrices else (table, table[:, :0])


def convert(weights: dict[str, Tensor], words: dict[str, int], vocabulary: dict[str, int]) -> tuple[Any, float]:
    """A student of methods/cmow.py whose tables hold the rows of the words, and the share of tokens that have one."""
    vectors, matrices = tables_of(weights)
    side = math.isqrt(matrices.shape[1])
    config = cmow.MatrixEmbeddingConfig(vocab_size=len(vocabulary), vector_size=vectors.shape[1], matrix_size=side,
                                        bidirectional=False, diffcat=False, head="linear")  # fmt: skip
    set_seed(0)
    model = cmow.MatrixEmbeddingForSequenceClassification(config)
    shared = [(vocabulary[word], row) for word, row in words.items() if word in vocabulary]
    if not shared:
        raise BadInput("no word is a token of the tokenizer")
    ids, rows = torch.tensor(shared).T
    with torch.no_grad():
        model.embeddings.vectors.weight[ids] = vectors[rows]
        model.embeddings.forward_matrices.weight[ids] = matrices[rows] - torch.eye(side).flatten()
    return model, len(shared) / len(vocabulary)


def main(argv: list[str]) -> None:
    parser = Parser("word2mat", __doc__)
    parser.add_argument("weights", type=Path, help="safetensors: the encoder's lookup tables")
    parser.add_argument("words", type=Path, help="JSON: word -> row")
    parser.add_argument("--tokenizer", default="google-bert/bert-base-uncased", help="the teacher's")
    parser.add_argument("--to", type=Path, required=True, help="folder to write, for --init")
    asked = parser.parse_args(argv)
    with refused(f"{asked.weights}, {asked.words}: cannot be read", OSError, ValueError, SafetensorError):
        weights, words = load_file(asked.weights), json.loads(asked.words.read_text(encoding="utf-8"))
    tokenizer = models.load_tokenizer(models.source(asked.tokenizer))
    wrong = AttributeError, TypeError, ValueError, IndexError, RuntimeError
    with refused(f"{asked.weights}, {asked.words}: not a table and its rows", *wrong):
        model, share = convert(weights, words, tokenizer.get_vocab())
    models.save(model, tokenizer, asked.to, "# Embeddings of Mai et al.\n\nMade by `python -m bench word2mat`.\n")
    print(f"saved: {asked.to}; {share:.0%} of the tokens have an embedding")
