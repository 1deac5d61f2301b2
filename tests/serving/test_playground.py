"""The playground in a real browser, against a server that is really started: every panel, used."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from chromium import Watch, until
from command_line import assert_one_line_error
from serving_server import Running, WatchedEngine, running, save_random_models, wait_for

from albertkit.inspection.attention import compute_attention
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import AlbertForQuestionAnswering, AlbertForSequenceClassification
from albertkit.pipelines import pipeline
from albertkit.serving.models import ServedModel, load_model
from albertkit.serving.settings import ServingSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer

MASKED = "The captain opened the [MASK] before dinner."
HEADS = {
    "pretrained": AlbertForPreTraining,
    "reader": AlbertForQuestionAnswering,
    "classifier": AlbertForSequenceClassification,
    "nli": AlbertForSequenceClassification,
}
KEY = "a-secret-key"


@pytest.fixture(scope="module")
def folders(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Random models with large weights, so that heads, labels and layers differ."""
    return save_random_models(HEADS, tiny_vocabulary, tmp_path_factory.mktemp("playground"), seed=1)


@pytest.fixture(scope="module")
def settings(folders: dict[str, str]) -> ServingSettings:
    return ServingSettings(models=folders, port=0, device="cpu", playground=True, max_characters=3000)


@pytest.fixture(scope="module")
def models(folders: dict[str, str]) -> dict[str, ServedModel]:
    return {name: load_model(name, folder, device="cpu") for name, folder in folders.items()}


@pytest.fixture(scope="module")
def server(settings: ServingSettings, models: dict[str, ServedModel]) -> Iterator[Running]:
    with running(settings, models) as started:
        yield started


class TestServer:
    def test_the_page_may_load_nothing_from_elsewhere(self, server: Running) -> None:
        page = server.ask("/playground")
        assert page.status == 200
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        named = set(re.findall(r'(?:src|href)="([^"]+)"', page.content.decode()))
        assert {f"playground/{name}" for name in ("shared.css", "playground.js", "icon.svg")} <= named
        for name in named:
            reply = server.ask(f"/{name}")
            assert (reply.status, reply.headers["X-Content-Type-Options"]) == (200, "nosniff")
            # Asked for again every time, and sent again only if it is another.
            again = server.ask(f"/{name}", headers={"If-None-Match": reply.headers["ETag"]})
            assert (again.status, again.content) == (304, b"")
            assert server.ask(f"/{name}", headers={"If-None-Match": '"other"'}).content == reply.content
            assert server.ask(f"/{name}", method="HEAD").status == 200
        assert server.ask("/").headers["Location"] == "playground"
        assert server.ask("/playground/../settings.py").status == 404
        assert 'route="/playground"' in server.ask("/metrics").content.decode()

    def test_inspect_is_what_inspection_computes(
        self, server: Running, models: dict[str, ServedModel]
    ) -> None:
        one = models["pretrained"].any_pipeline
        expected = compute_attention(one.model, one.tokenizer, MASKED, "a fox", parse_special_tokens="mask")
        body = {"input": {"text": MASKED, "text_pair": "a fox"}, "masks": True}
        reply = server.ask("/v1/inspect", body).json
        (found,) = reply["results"]
        assert reply["usage"]["total_tokens"] == len(expected.tokens)
        assert found["tokens"] == expected.tokens
        assert "[MASK]" in found["tokens"]
        assert (found["special"], found["segments"]) == (expected.special, expected.segments)
        for layer, own in zip(found["layers"], expected.layers, strict=True):
            packed = np.frombuffer(base64.b64decode(layer["attention"]), "<u2") / found["scale"]
            np.testing.assert_allclose(packed, own.probabilities.ravel(), atol=1e-5)
            assert (layer["stored"], layer["heads"]) == (own.stored, own.heads)
        np.testing.assert_allclose(found["cosine_to_last"], expected.cosine_to_last, atol=1e-5)
        np.testing.assert_allclose(found["cosine_to_previous"], expected.cosine_to_previous, atol=1e-5)
        # Without being asked for, a mask is text, as everywhere.
        assert "[MASK]" not in server.results("/v1/inspect", {"input": MASKED})[0]["tokens"]
        for route in ("inspect", "tokenize"):
            (masked,) = server.results(f"/v1/{route}", {"input": MASKED, "masks": True})
            assert masked["tokens"].count("[MASK]") == 1

    def test_inspect_has_the_limits_of_all_routes(self, server: Running) -> None:
        long = "the river " * 50
        reply = server.ask("/v1/inspect", {"input": long})
        assert (reply.status, reply.kind) == (422, "invalid")
        assert server.results("/v1/inspect", {"input": long, "truncate": True})[0]["cut"] > 0
        for body, status in [
            ({"input": " "}, 422),
            ({"input": ["a", "b"]}, 422),
            ({"input": "a", "layers": 1}, 422),
            ({"input": "a" * 4000}, 413),
            ({"input": "a", "model": "nobody"}, 404),
        ]:
            assert server.ask("/v1/inspect", body).status == status
        described = server.ask("/openapi.json").json
        assert set(described["paths"]["/v1/inspect"]["post"]["responses"]) >= {"200", "413", "422", "429"}
        assert "/playground" not in described["paths"]

    def test_inspect_is_computed_in_turn_and_in_its_time(
        self, settings: ServingSettings, models: dict[str, ServedModel]
    ) -> None:
        engine = WatchedEngine(models["pretrained"].engine)
        one = replace(models["pretrained"], pipelines=dict(models["pretrained"].pipelines))
        for name, own in one.pipelines.items():
            one.pipelines[name] = pipeline(name, model=own.model, tokenizer=own.tokenizer, engine=engine)
        with running(replace(settings, models={"pretrained": "-"}), {"pretrained": one}) as server:
            engine.may_go.clear()
            connection = server.connect()
            content = json.dumps({"input": "a fox"}).encode()
            connection.sendall(
                b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(content) + content
            )
            assert engine.entered.wait(60)
            late = server.ask(
                "/v1/inspect",
                {"input": "a fox"},
                headers={"Content-Type": "application/json", "X-Request-Timeout": "0.3"},
            )
            assert (late.status, late.kind) == (504, "deadline")
            engine.may_go.set()
            connection.close()
            assert server.ask("/v1/inspect", {"input": "a fox"}).status == 200

    def test_not_there_unless_wanted(self, settings: ServingSettings, models: dict[str, ServedModel]) -> None:
        with running(replace(settings, playground=False), models) as server:
            for path in ("/playground", "/playground/playground.js"):
                assert server.ask(path).status == 404
            assert server.ask("/").status == 405  # InferenceClient sends a POST to this path
            assert server.ask("/v1/inspect", {"input": "a"}).status == 404
            assert "/v1/inspect" not in server.ask("/openapi.json").json["paths"]

    def test_pages_are_open_and_the_rest_is_not(
        self, settings: ServingSettings, models: dict[str, ServedModel]
    ) -> None:
        with running(settings, models, key=KEY) as server:
            assert server.ask("/playground").status == 200
            assert server.ask("/playground/server.js").status == 200
            assert server.ask("/v1/inspect", {"input": "a"}).status == 401
            assert server.ask("/v1/models").status == 401
            assert server.ask("/playground/nothing.js").status == 401


def settle(page: Any) -> None:
    """Wait until every panel has its answer."""
    until(page, "document.querySelector('main > :not([hidden])') && !document.querySelector('[aria-busy]')")


def write(page: Any, label: str, text: str) -> None:
    page.get_by_label(label, exact=True).fill(text)
    settle(page)


def rows(page: Any, where: str) -> list[tuple[str, float]]:
    """The names and scores of bars."""
    names = page.locator(f"{where} .name").all_inner_texts()
    scores = page.locator(f"{where} .score").all_inner_texts()
    return [(name, float(one.removesuffix("%")) / 100) for name, one in zip(names, scores, strict=True)]


def same(found: list[tuple[str, float]], expected: list[tuple[str, float]]) -> bool:
    return [name for name, _ in found] == [name for name, _ in expected] and np.allclose(
        [score for _, score in found], [score for _, score in expected], atol=6e-4
    )


_NUMBERS = count()
SENTENCE = "Sentence; [MASK] stands for a word to predict"


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.fixture(scope="module")
def tab(browser, watch: Watch) -> Any:
    """One page for all tests: a link that is followed sets everything back."""
    return watch.over(browser.new_context(reduced_motion="reduce").new_page())


class TestInABrowser:
    @pytest.fixture
    def opened(self, tab: Any, server: Running, watch: Watch):
        """Open a link; what the browser complains of, and requests to elsewhere, fail the test."""

        def open_page(fragment: str = "") -> Any:
            # Also a link to the page that is there is followed, if it is another link.
            tab.goto(f"http://127.0.0.1:{server.port}/playground#{fragment}&unknown={next(_NUMBERS)}")
            tab.mouse.move(0, 0)
            settle(tab)
            return tab

        yield open_page
        tab.unroute_all()
        complaints, requests = watch.complaints.copy(), watch.requests.copy()
        watch.complaints.clear()
        watch.requests.clear()
        assert complaints == []
        assert requests
        own = f"http://127.0.0.1:{server.port}/"
        assert [url for url in requests if not url.startswith(own)] == []

    def test_candidates_while_typing(self, opened, folders: dict[str, str]) -> None:
        page = opened()
        fill = pipeline("fill-mask", folders["pretrained"], device="cpu")
        for text in (MASKED, "My sister [MASK] the river [MASK]."):
            write(page, SENTENCE, text)
            masks = fill(text, top_k=6)
            masks = masks if isinstance(masks[0], list) else [masks]
            expected = [(one["token_str"].strip() or "▁", one["score"]) for mask in masks for one in mask]
            assert same(rows(page, "#candidates"), expected)
            spoken = page.locator("#fill .status").inner_text()
            assert f"Best for mask {len(masks)}: {masks[-1][0]['token_str'].strip() or '▁'}" in spoken
        page.get_by_label(SENTENCE).press_sequentially(" And [MASK]")
        settle(page)
        assert page.locator("#candidates ol").count() == 3

    def test_words_are_masked_filled_and_brought_back(self, opened) -> None:
        page = opened("text=A+fox+lost+the+key.")
        field = page.get_by_label(SENTENCE)
        assert page.locator("#candidates").inner_text().startswith("Click a word")
        page.get_by_role("button", name="lost").click()
        settle(page)
        assert field.input_value() == "A fox [MASK] the key."
        best = rows(page, "#candidates")[0][0]
        mask = page.get_by_role("button", name="[MASK]")
        assert mask.get_attribute("aria-pressed") == "true"
        page.get_by_role("button", name="fox", exact=True).focus()
        page.keyboard.press("Enter")
        settle(page)
        assert field.input_value() == "A [MASK] [MASK] the key."
        assert page.locator("#candidates ol").count() == 2
        # The first is brought back, and has the focus; the second has the model's word.
        mask.first.click()
        settle(page)
        assert field.input_value() == "A fox [MASK] the key."
        assert page.evaluate("document.activeElement.textContent") == "fox"
        assert rows(page, "#candidates")[0][0] == best
        page.locator("#candidates button").nth(1).click()
        settle(page)
        second = field.input_value().removeprefix("A fox ").removesuffix(" the key.")
        assert second not in ("lost", "[MASK]", "")
        assert page.locator("#candidates ol").count() == 0

    def test_answers_that_come_late_are_dropped(self, opened) -> None:
        page = opened()
        held = []
        page.route("**/v1/fill-mask", lambda route: held.append(route) if not held else route.continue_())
        page.get_by_label(SENTENCE).fill("A fox [MASK].")
        wait_for(lambda: page.wait_for_timeout(20) or bool(held), 20)
        write(page, SENTENCE, "A fox [MASK] [MASK].")
        shown = rows(page, "#candidates")
        held[0].continue_()
        page.wait_for_timeout(200)
        assert page.locator("#candidates ol").count() == 2
        assert rows(page, "#candidates") == shown

    def test_pieces_are_the_tokenizers(self, opened, folders: dict[str, str]) -> None:
        page = opened()
        text = "Émile 🙂 sold  [MASK] café!"
        write(page, SENTENCE, text)
        encoded = AlbertTokenizer.from_pretrained(folders["pretrained"])(text, return_offsets_mapping=True)
        shown = [item.inner_text().split("\n") for item in page.locator("#ids li").all()]
        assert [int(parts[-2].removeprefix("id ")) for parts in shown] == encoded["input_ids"]
        dash = "\N{EN DASH}"
        places = [f"{start}{dash}{end}" if start < end else dash for start, end in encoded["offset_mapping"]]
        assert [parts[-1] for parts in shown] == places
        assert page.locator("#cuts").inner_text().split() == text.split()
        seen = set(page.locator("#cuts span").all_inner_texts())
        assert {text[start:end] for start, end in encoded["offset_mapping"] if end > start} == seen

    def test_attention_and_depth_are_the_models(self, opened, models: dict[str, ServedModel]) -> None:
        page = opened()
        write(page, SENTENCE, MASKED)
        one = models["pretrained"].any_pipeline
        report = compute_attention(one.model, one.tokenizer, MASKED, parse_special_tokens="mask")
        attentions = [layer.probabilities for layer in report.layers]

        def shares() -> list[float]:
            written = page.locator("#looks label:visible small").all_inner_texts()
            return [float(one.removesuffix("%")) / 100 for one in written]

        def close(found: Any, expected: Any) -> None:
            np.testing.assert_allclose(found, expected, atol=6e-4)

        page.locator("#looks input").nth(4).check()
        close(shares(), attentions[0].mean(0)[4])
        # The mouse on a head shows it, and on a piece that one; then what is chosen is there again.
        page.locator("#heads label").filter(has=page.get_by_label("layer 2, head 3")).hover()
        close(shares(), attentions[1][2][4])
        page.locator("#looks label").nth(6).hover()
        close(shares(), attentions[0].mean(0)[6])
        strongest = report.tokens[int(attentions[0].mean(0)[6].argmax())]
        assert f"{report.tokens[6]} attends most to {strongest}" in page.locator("#readout").inner_text()
        page.mouse.move(1, 1)
        close(shares(), attentions[0].mean(0)[4])
        # The keyboard alone: down a layer, then to the next heads.
        page.get_by_label("layer 1, mean of all heads").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
        close(shares(), attentions[2][1][4])
        page.get_by_label("is attended to by").check()
        close(shares(), attentions[2][1][:, 4])
        page.get_by_label("Show [CLS] and [SEP]").uncheck()
        close(shares(), attentions[2][1][1:-1, 4])

        def spoken() -> list[float]:
            label = page.locator("#plot svg").get_attribute("aria-label")
            return [float(one) for one in re.findall(r"layer \d+: (-?[\d.]+)", label)]

        np.testing.assert_allclose(spoken(), report.cosine_to_previous.mean(1), atol=6e-3)
        page.get_by_label("the one after the last layer").check()
        np.testing.assert_allclose(spoken(), report.cosine_to_last.mean(1), atol=6e-3)
        assert "All 3 layers have the same weights" in page.locator("#sharing").inner_text()
        # Another model in the same panels.
        page.locator("#fill select").select_option("reader")
        settle(page)
        other = models["reader"].any_pipeline
        report = compute_attention(other.model, other.tokenizer, MASKED, parse_special_tokens="mask")
        close(shares(), report.layers[2].probabilities[1][1:-1, 4])
        assert page.get_by_role("heading", name="A sentence").is_visible()
        assert not page.locator("#candidates").is_visible()

    def test_order(self, opened, folders: dict[str, str]) -> None:
        page = opened()
        judge = pipeline("sentence-order", folders["pretrained"], device="cpu")
        first, second = "The captain opened a silver key.", "My sister lost the river!"
        write(page, "First", first)
        write(page, "Second", second)
        for pair in ((first, second), (second, first)):
            here, other = (judge({"text": one, "text_pair": two}) for one, two in (pair, pair[::-1]))
            verdict = page.locator("#judgement .verdict").inner_text()
            assert verdict == f"Prediction: {here['label']}, {100 * here['score']:.1f}%"
            chances = [
                one["score"] if one["label"] == "in order" else 1 - one["score"] for one in (here, other)
            ]
            expected = [("in this order", chances[0]), ("swapped", chances[1])]
            assert same(rows(page, "#judgement"), expected)
            page.get_by_role("button", name="Swap").click()
            settle(page)
        assert page.get_by_label("First", exact=True).input_value() == first

    def test_the_answer_is_marked_in_the_text(self, opened, folders: dict[str, str]) -> None:
        page = opened()
        ask = pipeline("question-answering", folders["reader"], device="cpu")
        question = "Who followed the river?"
        context = "🙂 An old fox followed the river.\nThe doctor sold an empty house in 1847."
        write(page, "Question", question)
        page.locator("#context").fill(context)
        settle(page)
        answers = ask(question=question, context=context, top_k=3)
        for number, one in enumerate(answers):
            page.locator("#answers input").nth(number).check()
            assert page.locator("#marked mark").inner_text() == one["answer"]
            before = page.evaluate("document.querySelector('#marked mark').previousSibling.textContent")
            assert before == context[: one["start"]]
            shown = page.locator("#answers label").nth(number).inner_text()
            assert " ".join(one["answer"].split()) in shown
            assert f"{100 * one['score']:.1f}%" in shown
        assert page.locator("#answer .status").inner_text() == f"Answer: {answers[0]['answer']}"

    def test_labels(self, opened, folders: dict[str, str]) -> None:
        page = opened()
        classify = pipeline("text-classification", folders["classifier"], device="cpu")
        page.locator("#classified").fill("The child remembered a well-kept secret.")
        settle(page)
        expected = classify("The child remembered a well-kept secret.", top_k=None)
        assert same(rows(page, "#labels"), [(one["label"], one["score"]) for one in expected])
        write(page, "Second text, for models that classify pairs", "a fox")
        pair = {"text": "The child remembered a well-kept secret.", "text_pair": "a fox"}
        expected = classify(pair, top_k=None)
        assert same(rows(page, "#labels"), [(one["label"], one["score"]) for one in expected])

    @pytest.mark.parametrize("reads_pairs", [True, False, None])
    def test_the_second_text_depends_on_the_model(
        self, opened, folders: dict[str, str], reads_pairs: bool | None
    ) -> None:
        def change(route) -> None:
            response = route.fetch()
            content = response.json()
            assert {one["text_pairs"] for one in content["data"]} == {None}
            for one in content["data"]:
                one["text_pairs"] = reads_pairs
            route.fulfill(response=response, json=content)

        page = opened()
        page.goto(f"{page.url.partition('#')[0]}#pair=a%20fox")
        page.route("**/v1/models", change)
        page.reload()
        settle(page)
        assert page.locator("#classified-pair").is_visible() == (reads_pairs is not False)
        given = {"text": page.locator("#classified").input_value(), "text_pair": "a fox"}
        classify = pipeline("text-classification", folders["classifier"], device="cpu")
        expected = classify(given["text"] if reads_pairs is False else given, top_k=None)
        expected = expected[0] if isinstance(expected[0], list) else expected
        assert same(rows(page, "#labels"), [(one["label"], one["score"]) for one in expected])
        note = "This model was trained on pairs of texts. Enter the second text too."
        assert page.locator("#classify .status").inner_text() != note
        if reads_pairs is not False:
            page.locator("#classified-pair").fill("")
            settle(page)
            assert (page.locator("#classify .status").inner_text() == note) == (reads_pairs is True)
            page.locator("#classified").fill("The child remembered a secret. " * 40)
            settle(page)
            shown = page.locator("#classify .status.note").inner_text()
            truncated = r"\d+ tokens beyond the maximum were not read\."
            assert re.fullmatch(f"{truncated} {re.escape(note)}" if reads_pairs else truncated, shown)
        page.unroute("**/v1/models")

    def test_labels_of_your_choice(self, opened, folders: dict[str, str]) -> None:
        page = opened()
        classify = pipeline("zero-shot-classification", folders["nli"], device="cpu")
        assert not page.locator("#zero-shot .model").is_visible()  # only one model has a label for entailment
        text, labels = "The captain lost an empty house.", ["a river", "the sea", "letters"]
        page.locator("#zero-shot-text").fill(text)
        write(page, "Labels, separated by commas", "a river,the sea , letters, a river,")
        for template in ("This example is {}.", "It is about {}!"):
            write(page, "Sentence to test for each label, which replaces {}", template)
            expected = classify(text, labels, hypothesis_template=template)
            pairs = list(zip(expected["labels"], expected["scores"], strict=True))
            assert same(rows(page, "#zero-shot-scores"), pairs)
            assert page.locator("#zero-shot .status").inner_text().startswith(f"{pairs[0][0]}, ")
        write(page, "Labels, separated by commas", " ,")
        assert rows(page, "#zero-shot-scores") == []

    def test_a_template_without_a_place_for_the_label_is_an_error(self, opened, watch: Watch) -> None:
        page = opened()
        write(page, "Sentence to test for each label, which replaces {}", "It is nothing.")
        assert "Expected a text with one {} for the label" in page.locator("#zero-shot .error").inner_text()
        assert ["422" in one for one in watch.complaints] == [True]
        watch.complaints.clear()

    def test_all_of_it_is_in_the_address(self, opened, watch: Watch) -> None:
        page = opened()
        write(page, SENTENCE, "Queen Anne & “[MASK]” #1 + 1 = 🙂")
        write(page, "First", "")
        page.get_by_label("layer 2, head 4").check()
        page.locator("#looks input").nth(3).check()
        page.get_by_label("is attended to by").check()
        page.locator("#context").fill("Another text.")
        settle(page)
        fields = "[...document.querySelectorAll('textarea')].map((one) => one.value)"
        chosen = "[...document.querySelectorAll('input:checked')].map((one) => one.parentElement.textContent)"
        before = [page.evaluate(fields), page.evaluate(chosen), page.locator("#readout").inner_text()]
        until(page, "location.hash.includes('Another')")
        page.reload()
        settle(page)
        assert [page.evaluate(fields), page.evaluate(chosen), page.locator("#readout").inner_text()] == before
        assert before[0][0] == "Queen Anne & “[MASK]” #1 + 1 = 🙂"
        # Another link, and then the first one in another tab.
        link = page.url
        page.evaluate("location.hash = '#text=A+fox+[MASK]&second=x'")
        until(page, "document.querySelector('#second').value === 'x'")
        settle(page)
        assert page.get_by_label(SENTENCE).input_value() == "A fox [MASK]"
        assert page.locator("#candidates ol").count() == 1
        other = watch.over(page.context.new_page())
        other.goto(link)
        settle(other)
        assert other.evaluate(fields) == before[0]
        other.close()

    def test_a_link_is_copied(self, opened, server: Running) -> None:
        page = opened("text=A+fox")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_label("First", exact=True).fill("a river")
        page.get_by_role("button", name="Copy link").click()
        page.get_by_text("The link is copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"http://127.0.0.1:{server.port}/playground#text=A+fox&first=a+river"
        settle(page)

    def test_errors_are_said_and_pass(self, opened, watch: Watch, server: Running) -> None:
        page = opened()
        assert not page.locator("#order .error").is_visible()
        page.get_by_label("First", exact=True).fill("a fox " * 10_000)
        settle(page)
        # More than the field takes, and than this server does.
        assert page.get_by_label("First", exact=True).input_value() == ("a fox " * 10_000)[:3000]
        assert page.get_by_text("Only the first 3000 characters fit here.").is_visible()
        expected = "characters. Expected at most 3,000. Send less text in one request"
        assert expected in page.locator("#order .error").inner_text()
        assert page.locator("#order .error").get_attribute("role") == "status"
        assert not page.locator("#judgement").is_visible()  # it is of another text
        assert ["413" in one for one in watch.complaints] == [True]  # the browser's own word for it
        watch.complaints.clear()
        page.get_by_label("First", exact=True).fill("a fox " * 100)
        settle(page)
        assert page.locator("#order .error").count() == 0
        assert not page.get_by_text("characters fit here").is_visible()
        assert re.fullmatch(
            r"\d+ tokens beyond the maximum were not read\.", page.locator("#order .status.note").inner_text()
        )
        # A server that is not there any more.
        page.route("**/v1/order", lambda route: route.abort())
        page.get_by_label("First", exact=True).fill("a fox")
        settle(page)
        assert (
            page.locator("#order .error").inner_text() == "The server does not answer. Is it still running?"
        )
        assert len(watch.complaints) == 1
        watch.complaints.clear()

    @pytest.mark.parametrize("kind", ["light", "dark", "narrow"])
    def test_accessible_to_all(self, opened, kind: str) -> None:
        sync_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
        width = 360 if kind == "narrow" else 1200
        page = opened()
        page.emulate_media(color_scheme="dark" if kind == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 300) == (kind == "dark")
        moving = page.evaluate("getComputedStyle(document.querySelector('.bar span')).transitionDuration")
        assert float(moving.removesuffix("s")) == 0
        page.get_by_role("button", name="shook").hover()
        found = sync_playwright.Axe().run(page).response
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
        assert len(found["passes"]) > 20

    def test_the_key_is_asked_for_and_kept_in_the_tab(
        self,
        browser,
        settings: ServingSettings,
        models: dict[str, ServedModel],
    ) -> None:
        watch = Watch()
        with running(settings, models, key=KEY) as server:
            address = f"http://127.0.0.1:{server.port}/playground"
            page = watch.over(browser.new_context().new_page())
            page.goto(f"{address}#text=A+fox+[MASK]")
            field = page.get_by_label("Key of this server")
            for key, said in (("wrong", "needs a key"), (KEY, "is not the key")):
                field.wait_for()
                assert page.locator("main > section:visible").count() == 0
                until(page, f"document.querySelector('#about').textContent.includes('{said}')")
                assert page.evaluate("document.activeElement.id") == "key"
                page.keyboard.type(key)
                page.keyboard.press("Enter")
                if key == "wrong":
                    until(page, "sessionStorage.length === 1")
            settle(page)
            assert not field.is_visible()
            assert page.locator("#candidates ol").count() == 1
            page.get_by_label("First", exact=True).fill("a river")
            settle(page)
            until(page, "location.hash.includes('river')")
            assert KEY not in page.url
            assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
            page.reload()
            settle(page)
            assert page.locator("#candidates ol").count() == 1
            other = watch.over(page.context.new_page())
            other.goto(address)
            other.get_by_label("Key of this server").wait_for()
            assert all("401" in one for one in watch.complaints)
            assert len(watch.complaints) == 3
            assert not any(KEY in one for one in watch.requests)
            other.close()
            page.close()


class TestCommand:
    def test_playground_opens_a_browser(self, folders: dict[str, str], tmp_path: Path) -> None:
        browser, opened = tmp_path / "browser", tmp_path / "opened"
        browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
        browser.chmod(0o755)
        call = ["playground", "--model", f"tiny={folders['pretrained']}", "--device", "cpu"]
        process = subprocess.Popen(
            [sys.executable, "-m", "albertkit", *call],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"ALBERTKIT_THREADS": "1", "BROWSER": f"{browser} %s"},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            expected = r"tiny \(.*\) in the playground at (http://127\.0\.0\.1:(\d+)/playground)\n"
            found = re.fullmatch(expected, line)
            assert found, line
            wait_for(lambda: opened.exists() and opened.read_text() == f"{found[1]}\n")
            server = Running(None, int(found[2]))  # type: ignore[arg-type]
            assert server.ask("/playground").status == 200
            assert server.results("/v1/inspect", {"input": "a fox"})[0]["tokens"][-1] == "[SEP]"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()

    def test_errors_are_one_line(self, run, tmp_path: Path) -> None:
        assert_one_line_error(run("playground", "--model", tmp_path / "none", "--no-browser"), "none")
        assert_one_line_error(run("playground", "--port", "70000"), "port is 70000")
