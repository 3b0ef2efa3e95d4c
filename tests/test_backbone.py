"""The shipped pre-trained weights: they belong to this generator and this vocabulary, and they predict words."""

import json
import math
import random
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM

from bench import pocket_weights as backbone
from common import models, pocket
from common.pocket import grammar

SHIPPED = {**models.POCKET, "pocket-long": models.POCKET_LONG_FOLDER, "pocket-asked": models.POCKET_ASKED_FOLDER}


@pytest.fixture(scope="module", params=SHIPPED.values(), ids=SHIPPED)
def folder(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def note(folder: Path) -> dict:
    return json.loads((folder / "backbone.json").read_text(encoding="utf-8"))


def test_names_and_depths() -> None:
    """A pocket model's name says its depth, and the command of its note names it."""
    assert set(backbone.LAYERS.values()) == set(models.POCKET)
    for layers, name in backbone.LAYERS.items():
        assert models.load_config(models.source(name)).num_hidden_layers == layers


def test_weights_and_generator_belong_together(folder: Path, note: dict) -> None:
    assert int(note["generator_version"]) <= int(pocket.VERSION)
    assert note["vocabulary_hash"] == backbone.vocabulary_hash()
    assert note["weights_hash"] == models.file_digest(folder)


def test_the_tokenizer_in_the_folder_is_the_generators(folder: Path) -> None:
    saved, made = models.load_tokenizer(str(folder)), models.pocket_tokenizer()
    assert saved.get_vocab() == made.get_vocab()
    document = pocket.unlabelled(1)[0]
    assert saved(document)["input_ids"] == made(document)["input_ids"]
    assert saved.unk_token_id not in saved(document)["input_ids"]


def test_it_predicts_masked_words_of_text_it_has_not_seen(folder: Path, note: dict) -> None:
    """The note's figure, from the files: half precision costs nothing that can be seen."""
    model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    if folder in (models.POCKET_LONG_FOLDER, models.POCKET_ASKED_FOLDER):
        documents = backbone.long_texts(models.pocket_tokenizer(), backbone.LONG_INPUTS // 20, seed=2)
        found = backbone.long_accuracy(model, models.pocket_tokenizer(), documents)
        assert found == pytest.approx(note["held_out_masked_accuracy"], abs=0.005)
        return
    held_out = [(text,) for text in pocket.unlabelled(backbone.DEV, seed=2)]
    found = backbone.accuracy(model, models.pocket_tokenizer(), held_out)
    assert found == pytest.approx(note["held_out_masked_accuracy"], abs=0.005)
    assert found > 0.4  # the most frequent word alone is right far less often


def test_masking() -> None:
    tokenizer = models.pocket_tokenizer()
    inputs = backbone.batch_of(tokenizer, [(text,) for text in pocket.unlabelled(300)])
    before = inputs["input_ids"].clone()
    labels = backbone.mask(inputs, tokenizer, torch.Generator().manual_seed(0))
    chosen, words = labels >= 0, before >= len(models.SPECIAL_TOKENS)
    assert not (chosen & ~words).any()  # never a special token or padding
    assert chosen.sum() / words.sum() == pytest.approx(backbone.MASKED, abs=0.02)
    assert torch.equal(labels[chosen], before[chosen])
    assert torch.equal(inputs["input_ids"][~chosen], before[~chosen])
    hidden = inputs["input_ids"][chosen] == tokenizer.mask_token_id
    assert hidden.float().mean() == pytest.approx(0.8, abs=0.03)
    kept = inputs["input_ids"][chosen] == before[chosen]
    assert kept.float().mean() == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("layers", [4, 6])
def test_training_starts(layers: int, tmp_path: Path) -> None:
    """The command that made the weights still runs and writes the folder it says."""
    backbone.main(layers, steps=2, folder=tmp_path / "bert", inputs=50, documents=50)
    written = json.loads((tmp_path / "bert" / "backbone.json").read_text(encoding="utf-8"))
    assert written["weights_hash"] == models.file_digest(tmp_path / "bert")
    assert models.load_config(str(tmp_path / "bert")).num_hidden_layers == layers


def test_training_the_long_one_starts(tmp_path: Path) -> None:
    backbone.main_long(stages=((128, 1), (2048, 1)), folder=tmp_path / "bert", inputs=20)
    written = json.loads((tmp_path / "bert" / "backbone.json").read_text(encoding="utf-8"))
    assert (written["weights_hash"], written["steps"]) == (models.file_digest(tmp_path / "bert"), 2)
    assert models.load_config(str(tmp_path / "bert")).max_position_embeddings == models.POCKET_LONG


def test_training_the_asked_one_starts(tmp_path: Path) -> None:
    backbone.main_asked(stages=((48, 2), (160, 1), (2000, 1)), folder=tmp_path / "bert", inputs=20)
    written = json.loads((tmp_path / "bert" / "backbone.json").read_text(encoding="utf-8"))
    assert (written["weights_hash"], written["steps"]) == (models.file_digest(tmp_path / "bert"), 4)
    assert models.load_config(str(tmp_path / "bert")).max_position_embeddings == models.POCKET_LONG


# --- questions over documents ------------------------------------------------------------------------------


def read(question: str, told: str) -> str:
    """The answer of a question of hotpot, as a person would find it."""
    if match := re.fullmatch(r"who did (the \w+) \w+ \?", question):
        (name,) = {m[1] for m in re.finditer(rf"{match[1]} \w+ (\w+) ", told) if m[1] in NAMES}
        return name
    match = re.fullmatch(r"where is (?:the person who (the \w+ \w+)|(\w+)) from \?", question)
    assert match
    name = match[2] or re.findall(rf"{match[1]} (?!the )(\w+) ", told)[0]
    (city,) = set(re.findall(rf"\b{name} from (\w+) ", told))
    return city


NAMES = {noun.sg for noun in grammar.HOME.names}


@pytest.mark.parametrize("words", [48, 160, 2000])
def test_a_block_asks_what_it_tells(words: int) -> None:
    """Its marks are on the sentences that a reader of the text needs, and its answers are those that one finds."""
    tokenizer = models.pocket_tokenizer()
    fillers = ["the cook sold the sofa in the park .", "the brave niece hid the drill ."]
    rng, kinds = random.Random(0), Counter()
    people = pocket.people(60, seed=1)
    assert all(pocket.in_split((p.deed, p.origin, p.whom, p.both), "train") for group in people for p in group)
    for group in people:
        block = backbone.asked_block(rng, tokenizer, group, fillers, words)
        text = tokenizer.convert_ids_to_tokens(block.tokens)
        assert text[0] == "[CLS]"
        assert text[block.context - 1] == "[SEP]"
        assert "[UNK]" not in text
        assert len(block.places) == len(block.marks) == len(block.answers) == len(text)
        assert block.places == sorted(set(block.places))
        assert block.places[-1] < models.POCKET_LONG
        # a token has the short BERT's position of its place in the block
        assert all((place - at) % (models.POCKET_TRAINED - 1) == 0 for at, place in enumerate(block.places))
        questions = re.findall(r"(?<! person )(?:who|where) .+? \?", " ".join(text[1 : block.context - 1]))
        told = " ".join(text[block.context :]) + " "
        answers = {read(question, told) for question in questions}
        assert answers == {word for word, value in zip(text, block.answers, strict=True) if value == 1}
        could_be = {word for word, value in zip(text, block.answers, strict=True) if value >= 0}
        assert answers < could_be
        assert len(could_be) in (2, 3)
        kinds["both" if "person" in text[: block.context] else questions[0].split()[0]] += 1
        at = block.context
        for sentence in told.removesuffix(" .  ").removesuffix(" . ").split(" . "):
            length = sentence.count(" ") + 2
            (mark,) = {str(value) for value in block.marks[at : at + length]}  # of a sentence all or none
            fact = bool(NAMES & set(sentence.split()))
            assert (mark != "nan") == fact
            if answers & set(sentence.split()) and (" from " in sentence) == (questions[0][:5] == "where"):
                assert mark == "1.0"
            at += length
    assert set(kinds) == {"who", "where", "both"}


def test_a_head_learns_to_look_for_the_same_word() -> None:
    """Against plain loops, gradient included: words at one place or at too many, and special tokens, are left out."""
    torch.manual_seed(0)
    ids = torch.tensor([[2, 9, 8, 9, 7, 6, 6, 6, 6, 6, 3], [2, 9, 9, 8, 7, 8, 9, 5, 0, 0, 0]])
    scores = [torch.randn(2, 3, 11, 11, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    expected = torch.zeros((), dtype=torch.float64)
    for score in scores:
        terms = []
        for b, row in enumerate(ids.tolist()):
            for i, word in enumerate(row):
                others = [j for j, other in enumerate(row) if other == word and j != i]
                if word >= 5 and 1 <= len(others) <= backbone.RARE:
                    weights = score[b, 0, i].exp() / score[b, 0, i].exp().sum()
                    terms.append(-torch.log(sum(weights[j] for j in others) + 1e-6))
        expected = expected + sum(terms) / len(terms) / len(scores)
    loss = backbone.same_word_loss(ids, [score.softmax(-1) for score in scores])
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(*(torch.autograd.grad(value, scores) for value in (loss, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours[:, 0].abs().sum() > 0
        assert not ours[:, 1:].any()


@torch.no_grad()
def test_the_asked_one_looks_for_the_same_word() -> None:
    """The weights that are shipped do what they were taught, over a thousand words; the ones they began from do not."""
    tokenizer, rng = models.pocket_tokenizer(), random.Random(0)
    fillers = ["the cook sold the sofa in the park .", "the brave niece hid the drill ."]
    groups = pocket.people(4, seed=5)
    paid = {}
    for folder in (models.POCKET_LONG_FOLDER, models.POCKET_ASKED_FOLDER):
        blocks = [backbone.asked_block(rng, tokenizer, group, fillers, 1000) for group in groups]
        batch, _, _ = backbone.asked_batch(tokenizer, blocks)
        model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        attentions = model.bert(**batch, output_attentions=True).attentions
        paid[folder.name] = math.exp(-backbone.same_word_loss(batch["input_ids"], attentions[-len(backbone.MARKS) :]))
    assert paid["pocket-bert-asked"] > 0.5 > 0.1 > paid["pocket-bert-long"], paid


def test_the_marker_scores_facts_and_answers_alone() -> None:
    torch.manual_seed(0)
    marker = backbone.Marker(len(backbone.MARKS))
    states = [torch.randn(2, 4, backbone.WIDTH) for _ in backbone.MARKS]
    nan = math.nan
    marks = torch.tensor([[nan, 1, 0, nan], [nan, nan, 1, nan]])
    answers = torch.tensor([[nan, 1, nan, nan], [nan, nan, 0, 0]])
    loss, right = marker.loss(states, marks, answers)
    expected, hits = 0.0, []
    for weight, mark, state in zip(backbone.MARKS, marker.marks, states, strict=True):
        chances = [(torch.sigmoid(mark(state[b, i])).item(), marks[b, i].item()) for b, i in ((0, 1), (0, 2), (1, 2))]
        expected -= weight * sum(math.log(p if y else 1 - p) for p, y in chances) / 3
    for b, i in ((0, 1), (1, 2), (1, 3)):
        p, y = torch.sigmoid(marker.answer(states[-1][b, i])).item(), answers[b, i].item()
        expected -= math.log(p if y else 1 - p) / 3
        hits.append((p > 0.5) == (y > 0.5))
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert right == pytest.approx(sum(hits) / 3)


def test_a_sentence_stands_twice_or_the_document_as_it_is() -> None:
    documents = [[[10 * d + s] * 3 for s in range(5)] for d in range(1, 5)]
    rng, seen = random.Random(0), set()
    for _ in range(50):
        block = backbone.long_block(rng, documents, 60)
        counts = {count // 3 for count in Counter(block).values()}
        seen.add("twice" if all(count % 2 == 0 for count in counts) else "once")
    assert seen == {"twice", "once"}


def test_it_reads_a_word_off_the_other_copy_a_thousand_words_away() -> None:
    """A word that nothing beside it tells: hidden in one copy of a sentence, it is found if the other stands far away,
    and is not without the other."""
    tokenizer = models.pocket_tokenizer()
    model = BertForMaskedLM.from_pretrained(models.POCKET_LONG_FOLDER, dtype=torch.float32).eval()
    rng = random.Random(0)
    names, verbs = ("leon", "laura", "edgar", "diana", "felix"), ("thanked", "hated", "hired")
    fill = [f"{text} " for text in pocket.generate("hotpot", "train", 60, seed=3)["context"]]
    right = {True: 0, False: 0}
    for _ in range(20):
        name, told = rng.choice(names), f"the waiter {rng.choice(verbs)} {{}} in the garden on friday . "
        far = " ".join("".join(rng.sample(fill, 40)).split()[:1400])
        for copied in right:
            text = (told.format(name) if copied else "") + far + " . " + told.format("[MASK]")
            inputs = tokenizer(text, return_tensors="pt")
            at = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero().item()
            with torch.no_grad():
                best = model(**inputs).logits[0, at].argmax().item()
            right[copied] += best == tokenizer.convert_tokens_to_ids(name)
    assert right[True] >= 8, right
    assert right[False] <= 2, right


def test_stacking_repeats_the_layers_from_the_first_on() -> None:
    base, model = (BertForMaskedLM(backbone.config(50, layers)) for layers in (4, 6))
    backbone.stacked(model, base)
    for i, layer in enumerate(model.bert.encoder.layer):
        for name, weight in layer.named_parameters():
            assert torch.equal(weight, base.bert.encoder.layer[i % 4].get_parameter(name))
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, base.bert.embeddings.word_embeddings.weight)
