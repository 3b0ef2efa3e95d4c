"""Answers that are texts: beam search, BLEU and ROUGE against the libraries, the families' ways with languages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import NEUTRAL, tiny_bart, word_tokenizer
from safetensors.torch import save_file
from transformers import MBart50Tokenizer, MBartTokenizer, T5Config

from common import data, evaluate, models, text_metrics
from common.corpus import Text
from common.kinds import Split
from common.kinds.texts import BEAMS
from common.tasks import TASKS
from common.text import encode

FOUND = ["the cat sat on a mat .", "two dogs run quickly home", "no"]
TRUE = ["the cat sat on the mat .", "the dog runs home", "nothing at all"]


def test_texts_are_written_by_the_librarys_beam_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches give the same texts as one example at a time, in the order of the examples."""
    model, tokenizer = tiny_bart().eval(), word_tokenizer()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    texts = ["the film was good", "a cast", "the story with the music was very sad"]
    split = Split(list("012"), [(text,) for text in texts], ["film"] * 3)
    encoded = data.encode(tokenizer, split, TASKS["xsum"], 16)
    monkeypatch.setattr(data, "EVAL_TOKENS", 2 * max(encoded.lengths))  # two texts a batch
    found, _ = TASKS["xsum"].kind.predict(model, encoded, tokenizer, 8, evaluate.forward)
    for text, written in zip(texts, found, strict=True):
        ids = model.generate(**tokenizer(text, return_tensors="pt"), num_beams=BEAMS, max_new_tokens=8,
                             max_length=None, early_stopping=True)  # fmt: skip
        assert tokenizer.decode(ids[0], skip_special_tokens=True) == written


def test_bleu_is_sacrebleus() -> None:
    import sacrebleu

    assert text_metrics.bleu(FOUND, TRUE) == {"bleu": sacrebleu.corpus_bleu(FOUND, [TRUE]).score / 100}
    signature = text_metrics.signature("bleu")
    assert re.fullmatch(r"nrefs:1,case:mixed,eff:no,tok:13a,smooth:exp,version:[\d.]+", signature)


def test_rouge_is_rouge_scores() -> None:
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    found = text_metrics.rouge(FOUND, TRUE)
    assert next(iter(found)) == "rouge2"
    for name, value in found.items():
        expected = [scorer.score(true, text)[name].fmeasure for text, true in zip(FOUND, TRUE, strict=True)]
        assert value == pytest.approx(sum(expected) / 3)
    assert "stemmed" in text_metrics.signature("rouge2")


SCRIPTS = {  # a text, one with another letter or word, and BLEU's tokenizer
    "en": ("The cafe has rain_drops today", "The cafe has rain_drops now", "13a"),
    "de": ("Öl im Haus ist teuer", "Äl im Haus ist teuer", "13a"),
    "ru": ("Сегодня в городе идёт дождь", "Сегодня в городе идёт снег", "13a"),
    "el": ("Η πόλη έχει βροχή σήμερα", "Η πόλη έχει βροχή αύριο", "13a"),
    "hi": ("शहर की वर्षा बहुत है", "शहर का वर्षा बहुत है", "13a"),
    "ko": ("오늘 서울에 비가 온다", "오늘 부산에 비가 온다", "13a"),
    "zh": ("甲市今天下雨，iPhone 很好用", "乙市今天下雨，iPhone 很好用", "zh"),
    "ja": ("今日は東京で雨が降っています。", "今日は大阪で雨が降っています。", "char"),
    "th": ("วันนี้ฝนตกที่กรุงเทพ", "วันนี้แดดออกที่กรุงเทพ", "char"),
}


@pytest.mark.parametrize("language", SCRIPTS)
def test_metrics_see_every_script(language: str) -> None:
    """A text is equal to itself and not to another. The mark names the words where they are not the library's usual."""
    import sacrebleu

    text, other, tokenizer = SCRIPTS[language]
    assert set(text_metrics.rouge([text], [text]).values()) == {1.0}
    assert text_metrics.bleu([text], [text]) == {"bleu": pytest.approx(1)}
    assert 0 < text_metrics.rouge([other], [text])["rouge1"] < 1
    assert (
        text_metrics.bleu([other], [text])["bleu"]
        == sacrebleu.corpus_bleu([other], [[text]], tokenize=tokenizer).score / 100
    )
    assert f"tok:{tokenizer}," in text_metrics.signature("bleu", [text])
    assert text_metrics.signature("rouge2", [text]).endswith("stemmed" if language == "en" else ",Unicode words")


def test_rouge_of_plain_letters_is_the_same_beside_other_scripts() -> None:
    """Accents in one or two signs are equal; a task's mark is of its reported references."""
    odd = [*TRUE, "Der O\u0308lpreis"]
    found, alone = text_metrics.rouge([*FOUND, "der Ölpreis"], odd), text_metrics.rouge(FOUND, TRUE)
    assert found == pytest.approx({name: (3 * value + 1) / 4 for name, value in alone.items()})
    task, tokenizer = TASKS["xsum"], word_tokenizer()
    for texts, mark in ((TRUE, "stemmed"), (odd, "stemmed,Unicode words")):
        split = Split(list(texts), [(text,) for text in texts], list(texts))
        assert task.kind.comparable(task, tokenizer, 16, [split])["score"].partition(",")[2] == mark


@pytest.mark.parametrize("fifty", [False, True])
def test_languages_of_an_mbart(fifty: bool) -> None:
    """The code of the target language ends (25) or opens (50) the labels, and is where writing starts."""
    words = [f"▁{word}" for word in NEUTRAL]
    make: Any = MBart50Tokenizer if fifty else MBartTokenizer
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *words, *make().lang_code_to_id, "<mask>"]
    tokenizer, model, task = make(vocab=[(piece, 0.0) for piece in pieces]), tiny_bart(), TASKS["wmt16/en-ro"]
    task.kind.prepare(model, tokenizer, task)
    english, romanian, end = tokenizer.convert_tokens_to_ids(["en_XX", "ro_RO", "</s>"])
    encoded = data.encode(tokenizer, Split(["0"], [("the film",)], ["a cast"]), task, 16)
    source, target = (tokenizer.convert_tokens_to_ids(w) for w in (["▁the", "▁film"], ["▁a", "▁cast"]))
    assert encoded.features["input_ids"][0] == ([english, *source, end] if fifty else [*source, end, english])
    assert encoded.labels[0].tolist() == ([romanian, *target, end] if fifty else [*target, end, romanian])
    start = model.generation_config.forced_bos_token_id if fifty else model.generation_config.decoder_start_token_id
    assert start == romanian
    # texts of a corpus that is called as a language have its code, whatever the task's
    given = [Text("the film") for _ in range(4)]
    for one, corpus in zip(given, ("cs", "iw", "books", "en-multi"), strict=True):
        one.corpus = corpus
    own = encode(tokenizer, given, 16, written=True)
    czech, hebrew, at = *tokenizer.convert_tokens_to_ids(["cs_CZ", "he_IL"]), 0 if fifty else -1
    assert [row[at] for row in own.features["input_ids"]] == [czech, hebrew if fifty else english, english, english]
    assert [row.tolist()[at] for row in own.labels] == [czech, hebrew if fifty else romanian, romanian, english]


def test_a_t5_whose_output_layer_is_its_own(tmp_path: Path) -> None:
    """Flan-T5 does not tie it to the embeddings, and current configurations claim that it does: the file decides."""
    config = T5Config(vocab_size=31, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    state = models.build(config, "translation").state_dict()
    weights = {k: v.clone() for k, v in state.items() if "embed_tokens" not in k}
    weights["lm_head.weight"] = torch.randn(31, 16)
    config.architectures = ["T5ForConditionalGeneration"]
    config.save_pretrained(tmp_path)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = models.load_model(str(tmp_path), models.load_config(str(tmp_path)), "translation", head=True)
    assert torch.equal(loaded.state_dict()["lm_head.weight"], weights["lm_head.weight"])
    assert torch.equal(loaded.state_dict()["shared.weight"], weights["shared.weight"])
