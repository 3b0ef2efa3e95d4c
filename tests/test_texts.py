"""Translation and summarisation: pocket tasks, files, tokens and labels, beam search, BLEU and ROUGE, the teacher."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from conftest import NEUTRAL, word_tokenizer
from safetensors.torch import save_file
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertModel,
    MBart50Tokenizer,
    MBartTokenizer,
    T5Config,
    T5ForConditionalGeneration,
)

from common import data, local, metrics, models, pocket, train
from common.args import BadInput
from common.pocket import lexicon
from common.pocket import texts as pocket_texts
from common.pocket.grammar import NP, Clause

TRANSLATE, XSUM = data.TASKS["translate"], data.TASKS["xsum"]
NOUN = {noun.sg: noun for noun in (*pocket_texts.PEOPLE, *pocket_texts.RELATIVES, *pocket_texts.THINGS)}
VERB = {verb.base: verb for verb in (*pocket_texts.PERSON_VERBS, *pocket_texts.THING_VERBS)}


# --- the pocket tasks ------------------------------------------------------------------------------------------

# of the first 50 examples of every split; they change with the generator, and then `pocket.VERSION` has to change too
DIGESTS = {"translate": "42ba285215fd", "xsum": "d47b3c57c12e"}


@pytest.mark.parametrize("task", DIGESTS)
def test_the_same_examples_everywhere(task: str) -> None:
    rows = [pocket.generate(task, split, 50) for split in pocket.SPLITS[task]]
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12] == DIGESTS[task]
    more = pocket.generate(task, "dev", 80)
    assert {name: values[:50] for name, values in more.items()} == rows[1]


@pytest.mark.parametrize("task", DIGESTS)
def test_no_sentence_is_in_two_splits(task: str) -> None:
    found = {}
    for split in pocket.SPLITS[task]:
        rows = pocket.generate(task, split, 400)
        texts = rows["document"] if task == "xsum" else rows["source"]
        found[split] = {sentence for text in texts for sentence in re.split(r"(?<= \.) ", text)}
        if task == "xsum":
            found[split] |= set() if split == "train" else set(rows["label"])
        assert all(pocket.in_split((sentence,), split) for sentence in found[split])
    assert not found["train"] & (found["dev"] | found["test"])
    assert not found["dev"] & found["test"]


def test_words_of_the_other_language() -> None:
    """A closed vocabulary that shares no word with English, and every stem is one word's."""
    words = set(pocket_texts.foreign_words())
    assert not words & set(pocket.vocabulary())
    labels = pocket.generate("translate", "train", 3000)["label"]
    assert {word for text in labels for word in text.split()} <= words | {".", ","}
    assert len(set(pocket_texts._stems().values())) == len(pocket_texts._stems())
    tokenizer = models.pocket_bart("pocket")[1]
    assert all(tokenizer.unk_token_id not in tokenizer(text)["input_ids"] for text in labels[:200])


def test_grammar_of_the_other_language() -> None:
    """Order, agreement, the object's particle, negation and irregular forms, on one scene."""
    stems = pocket_texts._stems()

    def clause(agent: NP, verb: str, patient: NP, **slots: Any) -> Clause:
        return Clause(agent, VERB[verb], patient, **slots)

    def noun_class(word: str) -> str:
        return pocket_texts._noun_class(NOUN[word])

    nurse, uncle = NP(NOUN["nurse"]), NP(NOUN["uncle"])
    n, u = (f"{stems[word]}{noun_class(word)}" for word in ("nurse", "uncle"))
    verb = f"{stems['hire']}ut"
    assert pocket_texts.translate(clause(nurse, "hire", uncle)) == f"{n} ki {u} {verb}"
    assert pocket_texts.translate(clause(nurse, "hire", uncle), passive=True) == f"ki {u} {n} {verb}"
    assert pocket_texts.translate(clause(nurse, "hire", uncle, negated=True)) == f"{n} ki {u} {verb} nem"
    many = nurse.but(plural=True, adj=(adjective := pocket_texts.PERSON_ADJECTIVES[0]))
    agreeing = f"{stems[adjective]}en{noun_class('nurse')}i"
    assert pocket_texts.translate(clause(many, "hire", uncle)) == f"{n}i {agreeing} ki {u} {verb}ar"
    placed = clause(nurse, "hire", uncle, place=pocket_texts.PLACES[0], time=pocket_texts.TIMES[0])
    when, where = f"{stems[pocket_texts.TIMES[0]]}im", f"{stems[pocket_texts.PLACES[0]]}is"
    assert pocket_texts.translate(placed) == f"{when} {n} ki {u} {where} {verb}"
    children = NP(NOUN["child"], plural=True)
    assert pocket_texts.translate(clause(children, "praise", uncle)) == f"umari ki {u} zoguar"
    thing = NP(NOUN["apple"], "a")
    article = {"a": "ula", "o": "ulo"}[noun_class("apple")]
    assert pocket_texts.translate(clause(nurse, "sell", thing)).split()[2] == article
    assert {pocket_texts._noun_class(noun) for noun in NOUN.values()} == {"a", "o"}


def test_the_order_of_joined_clauses() -> None:
    rows = [pocket_texts._translation(Random(i), lambda _: True) for i in range(400)]
    for source, answer, _ in rows:
        joints = [joint for joint in pocket_texts.JOINTS if f" {joint} " in f" {source} "]
        for joint in joints:
            word = pocket_texts.JOINTS[joint]
            assert answer.startswith(f"{word} ") == (joint in pocket_texts.LATE)
            assert f"{word} " in answer


def test_summaries_say_what_the_introduced_person_did() -> None:
    """By rule: the role of the opening, both of its deeds in order, in the active, without details."""
    rows = pocket.generate("xsum", "test", 300)
    for document, summary in zip(rows["document"], rows["label"], strict=True):
        role = next(n.sg for n in pocket_texts.PEOPLE if re.search(rf"is an? \w+ {n.sg} from", document))
        assert summary.startswith(f"the {role} ")
        first, second = summary.removeprefix(f"the {role} ").removesuffix(" .").split(" and ")
        verbs = {verb.past: verb.part for verb in VERB.values()}
        at = []
        for deed in (first, second):
            past, noun = deed.split()[0], deed.split()[-1]
            places = [
                i
                for i, sentence in enumerate(re.split(r"(?<= \.) ", document)[1:])
                if re.search(rf"\b({past}|{verbs[past]})\b", sentence) and re.search(rf"\b{noun}\b", sentence)
            ]
            assert places, (document, summary)
            at.append(places)
        assert min(at[0]) < max(at[1])
        assert not set(summary.split()) & set(lexicon.PERSON_ADJECTIVES)


@pytest.mark.parametrize("task", DIGESTS)
def test_noise_in_training_alone(task: str) -> None:
    """About the stated share of training answers is wrong, none of the others; two runs differ in those alone."""

    def answers(split: str, noise: float) -> list[str]:
        owned = lambda text: pocket.in_split((text,), split)  # noqa: E731
        return pocket_texts.generate(task, split, 1500, 0, noise, owned)["label"]

    clean, noisy = answers("train", 0.0), pocket.generate(task, "train", 1500)["label"]
    share = sum(a != b for a, b in zip(clean, noisy, strict=True)) / 1500
    assert share == pytest.approx(pocket.NOISE, abs=0.03)
    assert answers("test", 0.0) == pocket.generate(task, "test", 1500)["label"]


def test_text_of_both_languages() -> None:
    texts = pocket_texts.unlabelled(40)
    foreign = set(pocket_texts.foreign_words())
    shares = [sum(word in foreign for word in text.split()) / len(text.split()) for text in texts]
    assert max(shares[::2]) == 0
    assert min(shares[1::2]) > 0.6


# --- files and the hub's table -----------------------------------------------------------------------------------


def write_pairs(folder: Path, train_rows: int = 120, dev_rows: int = 24) -> Path:
    """Sentences of the tests' words; their "translation" has the words in reverse."""
    folder.mkdir(parents=True)
    rng = Random(0)
    for split, rows in (("train", train_rows), ("dev", dev_rows), ("test", dev_rows)):
        lines = ["source\ttarget"]
        for _ in range(rows):
            words = rng.sample(NEUTRAL, rng.randint(3, 6))
            lines.append(f"{' '.join(words)}\t{' '.join(reversed(words))}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_local_files(tmp_path: Path) -> None:
    write_pairs(tmp_path / "tatoeba_en_fr")
    task = data.load("tatoeba/en-fr", str(tmp_path))
    assert (task.reported, len(task.splits["train"])) == (("test",), 120)
    first = task.splits["train"]
    assert first.texts[0][0].split() == list(reversed(first.labels[0].split()))
    folder = tmp_path / "aeslc"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        row = json.dumps({"document": f'the "{split}"\nstory', "summary": "a scene"})
        (folder / f"{split}.jsonl").write_text(row + "\n")
    task = data.load("aeslc", str(tmp_path))
    assert task.splits["dev"].texts == [('the "dev"\nstory',)]
    assert task.splits["dev"].labels == ["a scene"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("source\tfrench\na\tb\n", "no column 'target'"),
        ("source\ttarget\na\t \n", "the answer is"),
        ("source\ttarget\na\n", "1 columns where 2"),
    ],
)
def test_bad_files(text: str, says: str, tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "tatoeba_en_ro")
    (folder / "dev.tsv").write_text(text)
    with pytest.raises(BadInput, match=says):
        data.load("tatoeba/en-ro", str(tmp_path))


def test_rows_of_the_hub() -> None:
    """Both sides of a pair stand in one column; files saved from the hub's other sets have its names."""
    import datasets

    rows = datasets.Dataset.from_list([{"translation": {"en": "a cast", "ro": "o scena"}}])
    source = data.HUB["wmt16/en-ro"]
    found = local.dataset_rows(rows, source.columns, "wmt16", True, source.convert)
    assert found.columns == {"source": ["a cast"], "label": ["o scena"]}
    for name, task in data.TASKS.items():
        if task.kind in data.GENERATED and name in data.HUB:
            assert set(task.columns) <= set(data.HUB[name].columns)
    with pytest.raises(BadInput, match="pocket/translate"):
        data.check_name("tatoeba/en-fr")


def test_a_prompt_stands_before_every_text(tmp_path: Path) -> None:
    write_pairs(tmp_path / "tatoeba_en_fr")
    plain = data.load("tatoeba/en-fr", str(tmp_path))
    task = data.prompted(plain, "Translate :")
    for split in ("train", "test"):
        assert task.splits[split].texts[0][0] == f"Translate : {plain.splits[split].texts[0][0]}"
        assert task.splits[split].labels == plain.splits[split].labels
    assert task.fingerprint != plain.fingerprint
    assert data.prompted(plain, "") is plain


# --- tokens, batches, beam search --------------------------------------------------------------------------------


def test_answers_become_labels() -> None:
    """Tokens of the answer with their end, -100 after it, no longer than the longest of the batch."""
    tokenizer = models.pocket_bart("pocket")[1]
    split = data.Split(["0", "1"], [("the nurse .",), ("the judge slept .",)], ["the nurse .", "the"])
    encoded = data.encode(tokenizer, split, XSUM, 16)
    end = tokenizer.eos_token_id
    nurse = tokenizer.convert_tokens_to_ids(["the", "nurse", "."])
    assert encoded.labels.tolist() == [[*nurse, end], [nurse[0], end, -100, -100]]
    assert data.collate(tokenizer, encoded, [1])["labels"].tolist() == [[nurse[0], end]]
    batch = data.collate(tokenizer, encoded, [0, 1])
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert batch["input_ids"].shape == (2, 5)
    assert data.encode(tokenizer, split, XSUM, 3).labels.shape == (2, 3)


def text_tokenizer() -> Any:
    """The tests' words, without the types of texts, which no encoder-decoder reads."""
    tokenizer = word_tokenizer()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return tokenizer


def tiny_bart(seed: int = 0, width: int = 16, layers: int = 2) -> BartForConditionalGeneration:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {f"{s}_{k}": v for s in ("encoder", "decoder") for k, v in
                             {"layers": layers, "attention_heads": 2, "ffn_dim": 2 * width}.items()}  # fmt: skip
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    config = BartConfig(
        vocab_size=31, d_model=width, max_position_embeddings=64, init_std=0.3, forced_eos_token_id=None, dropout=0.0,
        **sizes, **special,
    )  # fmt: skip
    return BartForConditionalGeneration(config)


def test_texts_are_written_by_the_librarys_beam_search() -> None:
    """One call at a time gives the same as batches, in the order of the examples."""
    model, tokenizer = tiny_bart().eval(), text_tokenizer()
    texts = ["the film was good", "a cast", "the story with the music was very sad"]
    split = data.Split(list("012"), [(text,) for text in texts], ["film"] * 3)
    encoded = data.encode(tokenizer, split, XSUM, 16)
    found = train.write(model, encoded, tokenizer, 8, batch_size=2)
    for text, written in zip(texts, found, strict=True):
        ids = model.generate(**tokenizer(text, return_tensors="pt"), num_beams=train.BEAMS,
                             max_new_tokens=8, max_length=None, early_stopping=True)  # fmt: skip
        assert tokenizer.decode(ids[0], skip_special_tokens=True) == written


# --- metrics -----------------------------------------------------------------------------------------------------

FOUND = ["the cat sat on a mat .", "two dogs run quickly home", "no"]
TRUE = ["the cat sat on the mat .", "the dog runs home", "nothing at all"]


def test_bleu_is_sacrebleus() -> None:
    import sacrebleu

    wanted = sacrebleu.corpus_bleu(FOUND, [TRUE])
    assert metrics.bleu(FOUND, TRUE) == {"bleu": wanted.score / 100}
    assert metrics.bleu(TRUE, TRUE)["bleu"] == pytest.approx(1)
    signature = metrics.signature("bleu")
    assert re.fullmatch(r"nrefs:1,case:mixed,eff:no,tok:13a,smooth:exp,version:[\d.]+", signature)


def test_rouge_is_rouge_scores() -> None:
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    found = metrics.rouge(FOUND, TRUE)
    for name in found:
        values = [scorer.score(true, text)[name].fmeasure for text, true in zip(FOUND, TRUE, strict=True)]
        assert found[name] == pytest.approx(sum(values) / 3)
    assert next(iter(found)) == "rouge2"
    plain = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=False)
    assert found["rouge1"] > sum(plain.score(t, f)["rouge1"].fmeasure for f, t in zip(FOUND, TRUE, strict=True)) / 3
    assert "stemmed" in metrics.signature("rouge2")


# --- the teacher -------------------------------------------------------------------------------------------------


def test_the_pocket_barts_encoder_is_the_pocket_bert() -> None:
    """The same states for the same tokens, before any training."""
    config, tokenizer = models.pocket_bart("pocket")
    model = models.build_student(config, "translation", None).eval()
    models.encode_as_pocket_bert(model, "pocket")
    bert = BertModel.from_pretrained(models.POCKET["pocket"], dtype=torch.float32).eval()
    inputs = tokenizer(["the nurse praised the uncle .", "a boat ."], padding=True, return_tensors="pt")
    with torch.no_grad():
        own = model.model.encoder(**inputs).last_hidden_state
        theirs = bert(**inputs).last_hidden_state
    valid = inputs["attention_mask"].bool()
    torch.testing.assert_close(own[valid], theirs[valid], atol=2e-3, rtol=1e-3)  # norms: epsilons of 1e-5 and 1e-12
    assert models.stack_depths(config) == [4, 2]


@pytest.mark.parametrize("fifty", [False, True])
def test_languages_of_an_mbart(fifty: bool, tmp_path: Path) -> None:
    """The code of the target language ends (25) or opens (50) the labels, and is where writing starts."""
    words = [f"▁{word}" for word in NEUTRAL]
    make: Any = MBart50Tokenizer if fifty else MBartTokenizer
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *words, *make().lang_code_to_id, "<mask>"]
    tokenizer = make(vocab=[(piece, 0.0) for piece in pieces])
    model = tiny_bart()
    models.set_languages(model, tokenizer, data.TASKS["wmt16/en-ro"])
    english, romanian, end = tokenizer.convert_tokens_to_ids(["en_XX", "ro_RO", "</s>"])
    split = data.Split(["0"], [("the film",)], ["a cast"])
    encoded = data.encode(tokenizer, split, data.TASKS["wmt16/en-ro"], 16)
    source, target = (tokenizer.convert_tokens_to_ids(w) for w in (["▁the", "▁film"], ["▁a", "▁cast"]))
    if fifty:
        assert encoded.features["input_ids"][0] == [english, *source, end]
        assert encoded.labels[0].tolist() == [romanian, *target, end]
        assert model.generation_config.forced_bos_token_id == romanian
    else:
        assert encoded.features["input_ids"][0] == [*source, end, english]
        assert encoded.labels[0].tolist() == [*target, end, romanian]
        assert model.generation_config.decoder_start_token_id == romanian


def test_a_t5_whose_output_layer_is_its_own(tmp_path: Path) -> None:
    """Flan-T5 does not tie it to the embeddings, and current configurations claim that it does: the file decides."""
    config = T5Config(vocab_size=31, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    model = T5ForConditionalGeneration(config)
    weights = {k: v.clone() for k, v in model.state_dict().items() if "embed_tokens" not in k}
    weights["lm_head.weight"] = torch.randn(31, 16)
    config.architectures = ["T5ForConditionalGeneration"]
    config.save_pretrained(tmp_path)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = models.load_model(str(tmp_path), models.load_config(str(tmp_path)), "translation", head=True)
    assert torch.equal(loaded.state_dict()["lm_head.weight"], weights["lm_head.weight"])
    assert torch.equal(loaded.state_dict()["shared.weight"], weights["shared.weight"])
