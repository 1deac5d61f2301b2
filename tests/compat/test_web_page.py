"""Tests of the page of `export web --page` in Chromium: answers, downloads, offline use, accessibility.

The answers are compared with those of Python on 200 texts for each head.
"""

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_texts import texts
from chromium import Watch, until
from modeling_twins import HEADS
from node_packages import npm_install
from serving_server import save_random_models
from static_site import Site

import albertkit
from albertkit.hub import resolve
from albertkit.web import export
from albertkit.web.libraries import fetch_libraries

COUNT = 200
ANSWERED = ("AlbertForMaskedLM", "AlbertForSequenceClassification", "AlbertForTokenClassification")
ANSWERED += ("AlbertForQuestionAnswering", "AlbertModel")
TOLERANCE = 1e-4
ASK = """async (asked) => {
    const { ask } = await import(new URL('page/server.js', location.href));
    return Promise.all(asked.map(([path, body]) => ask(path, body)));
}"""


SAMPLES = [
    {"question": "Who lost the key?", "context": "A fox lost the key."},
    {"question": "Where is the fox?", "context": "The fox is in the garden."},
]
VOCABULARY = resolve("bundled", patterns=("*.model",)) / "spiece.model"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a random model for each head, pages in NAME-web, and the bundled page `small`."""
    npm_install(
        tmp_path_factory.mktemp("npm"), "@huggingface/tokenizers@0.2.0"
    )  # skips the tests if npm fails
    root = tmp_path_factory.mktemp("pages")
    save_random_models({name: HEADS[name] for name in ANSWERED}, VOCABULARY, root, seed=3)
    libraries = fetch_libraries()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "fetch_libraries", lambda: libraries)
        for name in ANSWERED:
            given = {"title": "Foxes", "samples": SAMPLES} if name == "AlbertForQuestionAnswering" else {}
            albertkit.export_web(root / name, root / f"{name}-web", page=True, int8=False, **given)
        albertkit.export_web("bundled", root / "small", page=True, max_drop=1.5)
    return root


@pytest.fixture(scope="module")
def site(root: Path) -> Iterator[Site]:
    site = Site(root)
    yield site
    site.stop()


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.fixture
def opened(browser, site: Site, watch: Watch):
    """Return a function that opens a page and waits for its model. Errors and other hosts fail the test."""
    contexts = []

    def open_page(name: str, hash_: str = "", *, server: Site = site):
        contexts.append(browser.new_context(viewport={"width": 1100, "height": 800}))
        page = watch.over(contexts[-1].new_page())
        page.goto(f"{server.address}{name}{'/' if name else ''}{hash_}")
        ready(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert watch.complaints == []
    assert [url for url in watch.requests if not url.startswith("http://127.0.0.1:")] == []
    assert watch.requests
    watch.requests.clear()


def ready(page) -> None:
    until(page, "document.getElementById('download').hidden", seconds=120)
    assert page.locator("#about.error").count() == 0, page.locator("#about").inner_text()


def settle(page) -> None:
    page.wait_for_timeout(400)  # the page waits after the last key
    until(page, "!document.querySelector('[aria-busy]')")


def ask_all(page, path: str, bodies: list[dict[str, Any]]) -> list[Any]:
    return page.evaluate(ASK, [[path, body] for body in bodies])


class TestAnswers:
    """Answers from the float32 graph, which must be equal to those of Python."""

    def test_tokens(self, opened, root: Path) -> None:
        page, given = opened("AlbertModel-web"), texts(COUNT)
        tokenizer = albertkit.AutoTokenizer.from_pretrained(root / "AlbertModel")
        answers = ask_all(page, "v1/tokenize", [{"input": text} for text in given])
        for text, answer in zip(given, answers, strict=True):
            (result,) = answer["results"]
            expected = tokenizer(text, return_offsets_mapping=True)
            assert result["input_ids"] == expected["input_ids"], text
            covered = [text[start:end] for start, end in result["offsets"]]
            assert covered == [text[start:end] for start, end in expected["offset_mapping"]], text

    def test_masked_words(self, opened, root: Path) -> None:
        page = opened("AlbertForMaskedLM-web")
        given = [f"{text} [MASK] and [MASK]." for text in texts(COUNT)]
        ours = albertkit.pipeline("fill-mask", str(root / "AlbertForMaskedLM"))
        answers = ask_all(page, "v1/fill-mask", [{"input": text, "top_k": 5} for text in given])
        for text, answer in zip(given, answers, strict=True):
            for mask, expected in zip(answer["results"][0], ours(text, top_k=5), strict=True):
                assert [word["token"] for word in mask] == [word["token"] for word in expected], text
                scores = [[word["score"] for word in side] for side in (mask, expected)]
                np.testing.assert_allclose(scores[0], scores[1], atol=TOLERANCE)

    def test_labels(self, opened, root: Path) -> None:
        page, given = opened("AlbertForSequenceClassification-web"), texts(COUNT)
        ours = albertkit.pipeline("text-classification", str(root / "AlbertForSequenceClassification"))
        pairs = [{"text": text, "text_pair": given[-1 - number]} for number, text in enumerate(given[:20])]
        requests = [{"input": text, "top_k": 3} for text in (*given, *pairs)]
        labels = set()
        for request, response in zip(requests, ask_all(page, "v1/classify", requests), strict=True):
            expected = ours(request["input"], top_k=3, truncation=True)
            (answer,) = response["results"]
            assert [label["label"] for label in answer] == [label["label"] for label in expected]
            scores = [[label["score"] for label in side] for side in (answer, expected)]
            np.testing.assert_allclose(scores[0], scores[1], atol=TOLERANCE)
            labels.add(answer[0]["label"])
        assert len(labels) > 1

    def test_tags(self, opened, root: Path) -> None:
        page, given = opened("AlbertForTokenClassification-web"), texts(COUNT)
        ours = albertkit.pipeline("token-classification", str(root / "AlbertForTokenClassification"))
        answers = ask_all(page, "v1/tag", [{"input": text} for text in given])
        for text, answer in zip(given, answers, strict=True):
            assert answer["results"][0]["cut"] == 0
            first_tokens: dict[int, dict[str, Any]] = {}
            for token in ours(text, ignore_labels=()):
                first_tokens.setdefault(token["start"], token)
            words = answer["results"][0]["words"]
            assert words or not first_tokens
            for word in words:
                expected = first_tokens[word["start"]]
                assert word["label"] == expected["entity"], (text, word)
                assert abs(word["score"] - expected["score"]) < TOLERANCE

    def test_answers(self, opened, root: Path) -> None:
        page, given = opened("AlbertForQuestionAnswering-web"), texts(COUNT)
        given = [text for text in given if re.search(r"\w", text)]
        ours = albertkit.pipeline("question-answering", str(root / "AlbertForQuestionAnswering"))
        questions = [{"question": "Who carried the key?", "context": text[:100]} for text in given]
        responses = ask_all(page, "v1/answer", [{"input": question, "top_k": 3} for question in questions])
        for question, response in zip(questions, responses, strict=True):
            for answer, expected in zip(response["results"][0], ours(question, top_k=3), strict=True):
                assert {name: answer[name] for name in ("start", "end", "answer")} == {
                    name: expected[name] for name in ("start", "end", "answer")
                }, question
                assert abs(answer["score"] - expected["score"]) < TOLERANCE

    def test_vectors(self, opened, root: Path) -> None:
        page, given = opened("AlbertModel-web"), texts(COUNT)
        ours = albertkit.pipeline("feature-extraction", str(root / "AlbertModel"))
        (response,) = ask_all(page, "v1/embeddings", [{"input": given}])
        for text, item in zip(given, response["data"], strict=True):
            np.testing.assert_allclose(item["embedding"], ours(text, pooling="mean"), atol=TOLERANCE)

    def test_an_error_disappears_after_the_text_is_corrected(self, opened) -> None:
        page = opened("AlbertForMaskedLM-web", f"#text={'word+' * 80}[MASK]")
        settle(page)
        error = page.locator("#fill .error").inner_text()
        assert error == "The first 64 tokens, the maximum length, contain no mask. Shorten the text."
        page.get_by_label("Sentence; [MASK] stands for a word to predict").fill("A [MASK].")
        settle(page)
        assert page.locator("#fill .error").count() == 0
        assert page.locator("#candidates li").count() == 6


DOCTOR = "The doctor shook his [MASK] and said nothing."
"""The first sentence of the page."""


def best(page, text: str) -> str:
    """Return the best word for a mask on the page, after comparing it with Python."""
    word = page.locator("#candidates li").first.inner_text().split()[0]
    (expected,) = albertkit.pipeline("fill-mask")(text, top_k=1)
    assert word == expected["token_str"].strip()
    return word


class TestPage:
    """The page of the bundled model in int8, and how visitors use it."""

    def test_the_keyboard_is_enough_to_use_the_page(self, opened) -> None:
        page = opened("small")
        settle(page)
        word = best(page, DOCTOR)
        first = page.locator("#candidates button").first
        first.focus()
        page.keyboard.press("Enter")
        settle(page)
        field = page.get_by_label("Sentence; [MASK] stands for a word to predict")
        assert field.input_value() == DOCTOR.replace("[MASK]", word)
        field.focus()
        page.keyboard.press("Control+A")
        text = "The captain of the [MASK] looked at the sea."
        page.keyboard.type(text)
        settle(page)
        spoken = page.locator("#fill p.status").inner_text()
        assert spoken.startswith(f"Best for mask 1: {best(page, text)},")
        assert "%5BMASK%5D+looked" in page.url

    def test_title_samples_and_facts(self, opened) -> None:
        page = opened("AlbertForQuestionAnswering-web")
        settle(page)
        assert [page.title(), page.locator("h1").inner_text()] == ["Foxes", "Foxes"]
        for number, sample in enumerate(SAMPLES):
            if number:  # the first sample is in the fields
                page.get_by_role("button", name=sample["question"]).click()
                settle(page)
            fields = [page.locator(f"#{name}").input_value() for name in sample]
            assert fields == [*sample.values()]
            assert page.locator("#marked").inner_text() == sample["context"]
        facts = page.locator("#facts div").all_inner_texts()
        assert facts[:3] == [
            "Name\nAlbertForQuestionAnswering", "Task\nquestion-answering", "Maximum length\n64 tokens",
        ]  # fmt: skip

    def test_the_download_shows_its_progress(self, browser, root: Path) -> None:
        site = Site(root / "small")
        page = browser.new_context().new_page()
        held: list[Any] = []
        page.context.route("**/model.onnx.gz?*", lambda route: held.append(route))
        page.goto(site.address)
        until(page, "document.getElementById('progress').value > 0.3", seconds=60)  # all files but the model
        assert 0.3 < page.evaluate("document.getElementById('progress').value") < 0.6
        about = json.loads((root / "small" / "page" / "files.json").read_text())
        total = sum(download["bytes"] for download in about["downloads"]) / 1e6
        assert re.match(rf"\d\.\d of {total:.1f} MB\.", page.locator("#loaded").inner_text())
        held[0].continue_()
        ready(page)
        page.context.close()
        site.stop()

    def test_the_next_visit_needs_no_network(self, browser, root: Path) -> None:
        site, watch = Site(root / "small"), Watch()
        page = watch.over(browser.new_context().new_page())
        page.goto(site.address)
        ready(page)
        until(page, "navigator.serviceWorker.controller")
        site.stop()
        page.reload()
        ready(page)
        settle(page)
        best(page, DOCTOR)
        assert watch.complaints == []
        page.context.close()

    @pytest.mark.parametrize("is_secure", [True, False])
    def test_a_returning_visitor_gets_the_new_model(
        self, browser, root: Path, tmp_path: Path, is_secure: bool
    ) -> None:
        """Check that the page loads the new model, although browsers reuse old files of the same size."""
        name = "AlbertForSequenceClassification"
        body = {"input": "The ship sank.", "top_k": 1}
        expected = []
        for number in (1, 2):
            save_random_models({name: HEADS[name]}, VOCABULARY, tmp_path / str(number), seed=number)
            web = tmp_path / f"{number}-web"
            albertkit.export_web(tmp_path / str(number) / name, web, page=True, int8=False, name="same")
            for file in web.rglob("*"):
                os.utime(file, (1.7e9 + number, 1.7e9 + number))
            (answer,) = albertkit.pipeline("text-classification", str(tmp_path / str(number) / name))(
                body["input"], top_k=1
            )
            expected.append(answer["score"])
        assert abs(expected[0] - expected[1]) > 10 * TOLERANCE
        sizes = [(tmp_path / f"{number}-web" / "onnx" / "model.onnx").stat().st_size for number in (1, 2)]
        assert sizes[0] == sizes[1]

        shutil.copytree(tmp_path / "1-web", tmp_path / "site")
        site = Site(tmp_path / "site")
        address = site.address if is_secure else site.address.replace("127.0.0.1", "example.test")
        page = browser.new_context().new_page()

        def score() -> float:
            ready(page)
            assert page.evaluate("isSecureContext") == is_secure
            (response,) = ask_all(page, "v1/classify", [body])
            return response["results"][0][0]["score"]

        page.goto(address)
        assert abs(score() - expected[0]) < TOLERANCE
        shutil.rmtree(tmp_path / "site")
        shutil.copytree(tmp_path / "2-web", tmp_path / "site")
        if is_secure:  # the browser shows the cached page and updates it in the background
            until(page, "navigator.serviceWorker.controller")
            page.goto("about:blank")
            page.goto(address)
            page.get_by_text("This page was updated. Load it again.").wait_for()
        page.goto("about:blank")
        page.goto(address)
        assert abs(score() - expected[1]) < TOLERANCE
        assert page.get_by_text("This page was updated").count() == 0
        page.context.close()
        site.stop()

    def test_a_page_opened_from_the_disk_shows_instructions(self, browser, root: Path) -> None:
        page = browser.new_context().new_page()
        page.goto((root / "small" / "index.html").as_uri())
        expected = (
            "This page needs a web server. In its folder, run `python -m http.server`, and open "
            "http://localhost:8000."
        )
        page.get_by_text(expected).wait_for()
        assert not page.locator("#download").is_visible()
        page.context.close()

    def test_an_error_hides_the_answers_to_the_previous_question(self, opened) -> None:
        page = opened("AlbertForQuestionAnswering-web")
        settle(page)
        assert page.locator("#answers").is_visible()
        page.locator("#question").fill("who " * 40)
        settle(page)
        assert "Expected at most 32. Shorten it." in page.locator("#answer .error").inner_text()
        assert not page.locator("#answers").is_visible()
        page.locator("#question").fill("who?")
        settle(page)
        assert page.locator("#answers").is_visible()

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (None, ": the server answers 404."),
            (lambda packed: packed[:-100], " completely."),
            (lambda packed: gzip.decompress(packed)[:-1], ": it has 606 bytes instead of 607."),
            (
                lambda packed: gzip.decompress(packed).replace(b"gelu", b"GELU"),
                ": its SHA-256 differs from the one in files.json.",
            ),
        ],
        ids=["missing", "broken off", "another length", "other content"],
    )
    def test_a_damaged_or_missing_file_is_an_error(
        self, browser, root: Path, change: Callable[[bytes], bytes] | None, reason: str
    ) -> None:
        site = Site(root / "small")
        page = browser.new_context().new_page()
        packed = (root / "small" / "page" / "model" / "config.json.gz").read_bytes()
        answer: dict[str, Any] = {"status": 404} if change is None else {"body": change(packed)}
        page.context.route("**/config.json.gz?*", lambda route: route.fulfill(**answer))
        page.goto(site.address)
        until(page, "document.querySelector('#about.error')")
        expected = f"model/config.json.gz could not be downloaded{reason} Load this page again."
        assert page.locator("#about").inner_text() == expected
        page.context.close()
        site.stop()

    @pytest.mark.parametrize("name", [*(f"{name}-web" for name in ANSWERED), "small"])
    @pytest.mark.parametrize("kind", ["light", "dark", "narrow"])
    def test_the_page_is_accessible(self, opened, name: str, kind: str) -> None:
        axe = pytest.importorskip("axe_playwright_python.sync_playwright")
        width = 360 if kind == "narrow" else 1200
        page = opened(name)
        page.emulate_media(color_scheme="dark" if kind == "dark" else "light", reduced_motion="reduce")
        page.set_viewport_size({"width": width, "height": 800})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 300) == (kind == "dark")
        results = axe.Axe().run(page).response
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in results["violations"]] == []
        assert len(results["passes"]) > 15

    def test_the_size_of_the_page_with_the_bundled_model(self, root: Path) -> None:
        page = root / "small"
        files = [path for path in (page / "page").rglob("*") if path.is_file()]
        total = sum(path.stat().st_size for path in (*files, page / "index.html", page / "service-worker.js"))
        assert 5_000_000 < total < 5_200_000  # 5.1 MB in docs/how-to/browser.md
        about = json.loads((page / "page" / "files.json").read_text())
        assert sum(download["bytes"] for download in about["downloads"]) < total
