"""Tests of German, Russian and Chinese, from the vocabulary to the answers of `fill-mask`."""
# ruff: noqa: RUF001 - letters of other scripts are what this is about

import re
import tomllib
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from pretraining_rows import document
from random_models import save_random_model

from albertkit import AlbertForMaskedLM, AlbertTokenizer, AlbertTokenizerFast, pipeline
from albertkit.errors import ConfigError, DataError
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.prepare import prepare, sections
from albertkit.pretraining.settings import PreparationSettings, PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.recipe import build
from albertkit.tokenization.model_file import WORD_START
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.unigram import UnigramModel
from albertkit.tokenization.vocabulary import train_vocabulary, unreachable_pieces

# Each line is one sentence.
SENTENCES = {
    "de": """\
Am 3. Oktober fuhr Dr. Müller mit dem Zug über die Brücke nach Köln.
Die Straße war naß, und es regnete seit zwei Tagen.
„Wohin möchten Sie?“, fragte der Schaffner.
Er wollte z. B. den Dom, das Rathaus und die Gärten sehen.
Die Gärten öffnen aber erst um zehn Uhr.
Im Café gegenüber las er die Zeitung vom 12. Mai 1987.
Übrigens hieß das Café früher anders.
Die Österreicherin am Fenster trank Tee und schrieb einen Brief.
Die Gärten und die Straße über die Brücke waren naß.
Später zeigte sie ihm die Universität.""",
    "ru": """\
В 1961 г. он приехал в Москву и поступил в университет.
Его отец, инженер, строил мосты и железные дороги.
Ёлка стояла в углу, а под ней лежал чёрный щенок.
А. С. Пушкин родился в 1799 году.
Каждый день они гуляли по набережной и считали корабли.
Бабушка спросила: «Какой сегодня день?»
Зимой река замёрзла, и лёд держался до мая.
Чёрный щенок лежал под ёлкой и считал дни до мая.
Весной всё зацвело: яблони, вишни, сирень.""",
    "zh": """\
今天的天气很好。
我们去公园吧！
你几点来？
他在2015年来到北京，在大学学习历史。
老师说：“明天考试。大家要早点来。”
学生们都很高兴。
学生们在图书馆学习中国历史。
北京的图书馆和公园今天都很安静。
他明天去北京大学的公园，不去图书馆。
北京大学的图书馆里有很多历史书。
我们明天去图书馆学习。
她喜欢在公园里看书，也喜欢听音乐。""",
}  # fmt: skip
PIECES = {"de": 120, "ru": 95, "zh": 100}
KEEP_ALL = Normalization(do_lower_case=False, keep_accents=True)


def text_of(language: str) -> str:
    return ("" if language == "zh" else " ").join(SENTENCES[language].splitlines())


@pytest.fixture(scope="module", params=SENTENCES)
def language(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer_folder(language: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(language)
    train_vocabulary(
        [SENTENCES[language]],
        folder,
        vocab_size=PIECES[language],
        normalization=KEEP_ALL,
        character_coverage=1,
        num_threads=1,
    )
    return folder


def test_sentences(language: str) -> None:
    (section,) = sections(text_of(language), PreparationSettings(language=language))
    assert section == SENTENCES[language].splitlines()


def test_case_and_accents_are_kept_everywhere(language: str, tokenizer_folder: Path, tmp_path: Path) -> None:
    sentences = [" ".join(line.split()) for line in SENTENCES[language].splitlines()]
    for kind in (AlbertTokenizer, AlbertTokenizerFast):
        tokenizer = kind.from_pretrained(tokenizer_folder)
        assert (tokenizer.do_lower_case, tokenizer.keep_accents) == (False, True)
        for sentence in sentences:
            assert spelled(tokenizer.tokenize(sentence)) == unicodedata.normalize("NFKC", sentence)

    corpus = tmp_path / "corpus.txt"
    corpus.write_text(text_of(language), encoding="utf-8")
    prepare([corpus], tokenizer_folder, tmp_path / "shards", language=language, workers=1)
    shards = ShardSet(tmp_path / "shards/train")
    tokenizer = AlbertTokenizer.from_pretrained(tokenizer_folder)
    found = [tokenizer.convert_ids_to_tokens(ids) for ids in document(shards, 0)]
    assert [spelled(pieces) for pieces in found] == [
        unicodedata.normalize("NFKC", line) for line in sentences
    ]

    model = save_random_model(AlbertForMaskedLM, tokenizer, tmp_path / "model")
    before, after = {
        "de": ("Die Österreicherin trank ", " über Köln."),
        "ru": ("Каждый чёрный щенок ", " под ёлкой."),
        "zh": ("我们去", "学习。"),
    }[language]
    answer = pipeline("fill-mask", model=str(model), top_k=1)(f"{before}[MASK]{after}")[0]
    assert answer["sequence"].startswith(before.rstrip())
    assert answer["sequence"].endswith(after.lstrip())


def test_whole_words(language: str, tokenizer_folder: Path) -> None:
    words = WordTable(tokenizer_folder / "spiece.model")
    encoder = UnigramModel(tokenizer_folder / "spiece.model", KEEP_ALL)

    def cut(text: str) -> list[str]:
        starts = words.starts(np.array(encoder.ids(text)))
        found: list[str] = []
        for piece, begins in zip(encoder.pieces(text), starts, strict=True):
            if begins:
                found.append("")
            found[-1] += piece.replace(WORD_START, "")
        return found

    if language == "zh":
        # A word is a piece: characters that often stand together.
        text = "我们在2015年去北京大学图书馆，学习iPhone历史。"
        found = cut(text)
        assert "".join(found) == text.replace("，", ",")
        assert {"2015", "年", "iPhone", ",", "。", "历史"} <= set(found)
        pieces = {piece.replace(WORD_START, "") for piece in encoder.pieces(text)}
        assert {word for word in found if not word[0].isascii()} <= pieces
    elif language == "de":
        assert cut("Die Österreicherin trank früher Tee in Köln-Süd, z. B. „schwarz“.") == [
            *("Die", "Österreicherin", "trank", "früher", "Tee", "in", "Köln", "-", "Süd", ","),
            *("z", ".", "B", ".", "„", "schwarz", "“", "."),
        ]
    else:
        assert cut("Чёрный щенок гулял по набережной: «лёд!»") == [
            *("Чёрный", "щенок", "гулял", "по", "набережной", ":", "«", "лёд", "!", "»")
        ]


def test_unreachable_pieces_are_listed(language: str, tokenizer_folder: Path, tmp_path: Path) -> None:
    model_file = tokenizer_folder / "spiece.model"
    assert unreachable_pieces(UnigramModel(model_file, KEEP_ALL)) == {}
    found = unreachable_pieces(UnigramModel(model_file, Normalization()))
    cased, accented = found.get("do_lower_case=true", []), found.get("keep_accents=false", [])
    expected = {
        "de": ({"Ü", "Ö", "K"}, {"ü", "ä", "ö"}),
        "ru": ({"Ё", "В"}, {"ё", "й"}),
        "zh": (set(), set()),
    }[language]
    assert expected[0] <= {piece.strip(WORD_START) for piece in cased}
    assert expected[1] <= {piece.strip(WORD_START) for piece in accented}
    assert "ß" not in accented  # a letter of its own
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(text_of(language), encoding="utf-8")
    if found:
        # The bare vocabulary, without the tokenizer_config.json beside it, is read as the original's are.
        bare = tmp_path / "spiece.model"
        bare.write_bytes(model_file.read_bytes())
        with pytest.warns(
            UserWarning, match=r"pieces of the vocabulary can never occur.*keep_accents=false: "
        ) as caught:
            prepare([corpus], bare, tmp_path / "shards", language=language, workers=1)
        assert caught[0].filename == __file__


def test_the_published_vocabulary_is_all_reachable(shared: Path) -> None:
    encoder = UnigramModel(shared / "data/spiece.model", Normalization())
    assert unreachable_pieces(encoder) == {}


def test_too_many_characters_for_the_pieces(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"smaller than required_chars"):
        train_vocabulary([SENTENCES["zh"]], tmp_path, vocab_size=50, character_coverage=1, num_threads=1)
    with pytest.raises(ConfigError, match=r"character_coverage must be between 0.98 and 1, not 0.5"):
        train_vocabulary([SENTENCES["zh"]], tmp_path, vocab_size=50, character_coverage=0.5)
    with pytest.raises(ConfigError, match=r"num_threads is 0\. Expected a whole number of at least 1"):
        train_vocabulary([SENTENCES["zh"]], tmp_path, vocab_size=50, num_threads=0)
    assert not any(tmp_path.glob("*.model"))


def spelled(pieces: list[str]) -> str:
    return "".join(pieces).replace(WORD_START, " ").strip()


def test_the_recipe_in_the_documentation_is_valid() -> None:
    text = (ROOT / "docs/how-to/new-language.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```toml [^\n]*\n(.*?)```", text, flags=re.DOTALL)
    settings = build(PretrainingSettings, tomllib.loads(table), where="docs/how-to/new-language.md")
    assert settings.training.max_minutes == 5
