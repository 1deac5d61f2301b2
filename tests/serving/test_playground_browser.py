"""Tests of every panel of the playground in a browser, with a running server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from chromium import Watch, until
from playground_fixtures import (  # noqa: F401
    KEY,
    folders_fixture,
    models_fixture,
    opened_fixture,
    server_fixture,
    settings_fixture,
    tab_fixture,
    watch_fixture,
)
from playground_pages import MASKED, SENTENCE, rows, same, settle, write
from serving_server import Running, running, save_random_models, wait_for

from albertkit.inspection.attention import compute_attention
from albertkit.modeling.heads import (
    AlbertForMultipleChoice,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import pipeline
from albertkit.serving.models import ServedModel, load_model
from albertkit.serving.settings import ServingSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer

GUITAR = "A man is playing a guitar on a stage."
SHOP = ["The shop opens at nine in the morning.", "In the morning, the shop opens at nine."]


class TestInABrowser:
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
        mask = page.locator("#words").get_by_role("button", name="[MASK]")
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
        assert page.get_by_role("heading", name="Look inside the model").is_visible()
        assert not page.locator("#fill .samples").is_visible()
        assert not page.locator("#candidates").is_visible()

    def test_order(self, opened, folders: dict[str, str]) -> None:
        page = opened()
        judge = pipeline("sentence-order", folders["pretrained"], device="cpu")
        first, second = "The captain opened a silver key.", "My sister lost the river!"
        write(page, "First", first)
        write(page, "Second", second)
        for pair in ((first, second), (second, first)):
            answer = judge({"text": pair[0], "text_pair": pair[1]})
            in_order = answer["score"] if answer["label"] == "in order" else 1 - answer["score"]
            expected = [("in this order", in_order), ("swapped", 1 - in_order)]
            assert same(rows(page, "#judgement"), expected)
            verdict = page.locator("#judgement .verdict").inner_text()
            assert verdict == f"In this order {100 * in_order:.1f}%, swapped {100 - 100 * in_order:.1f}%"
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

    def test_the_number_of_a_regression_is_no_percentage(self, opened) -> None:
        page = opened()
        answer = {"results": [[{"label": "rating", "score": 3.52}]]}
        page.route("**/v1/classify", lambda route: route.fulfill(json=answer))
        page.locator("#classified").fill("A fox lost the key.")
        settle(page)
        assert page.locator("#labels .score").inner_text() == "3.52"
        assert page.locator("#classify .status").inner_text() == "rating, 3.52"
        page.unroute("**/v1/classify")

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

    def test_errors_are_shown_and_disappear(self, opened, watch: Watch, server: Running) -> None:
        page = opened()
        assert not page.locator("#order .error").is_visible()
        page.get_by_label("First", exact=True).fill("a fox " * 10_000)
        settle(page)
        # More than the field takes, and than this server does.
        assert page.get_by_label("First", exact=True).input_value() == ("a fox " * 10_000)[:3000]
        assert page.get_by_text("Only the first 3000 characters fit here.").is_visible()
        expected = "characters. Expected at most 3,000. Send less in one request."
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

    def test_samples_fill_the_fields(self, opened) -> None:
        page = opened()
        assert page.get_by_label(SENTENCE).input_value() == "The doctor shook his [MASK] and said nothing."
        samples = page.get_by_role("group", name="Samples").first.get_by_role("button")
        assert samples.count() == 3
        samples.nth(1).click()
        settle(page)
        assert page.get_by_label(SENTENCE).input_value() == "She drank a cup of [MASK] before work."
        until(page, "location.hash.includes('drank')")

    @pytest.mark.parametrize(
        ("labels", "reads_pairs", "expected"),
        [
            (["negative", "POSITIVE"], None, ["A quiet, moving story that stays with you."]),
            (["1 star", "2 stars"], False, ["A quiet, moving story that stays with you."]),
            (["spam", "not_spam"], False, ["You have won a free holiday! Reply now to claim your prize."]),
            (["World", "Sports", "Sci/Tech"], None, ["The home team won the final with two late goals."]),
            (["technical_problem", "billing"], False, ["This text is about technical problem."]),
            (["entailment", "neutral"], None, [GUITAR, "Someone is making music."]),
            (["not_duplicate", "duplicate"], True, SHOP),
            (["LABEL_0", "LABEL_1"], True, SHOP),
            (["LABEL_0", "LABEL_1"], None, ["A quiet, moving story that stays with you."]),
        ],
    )  # fmt: skip
    def test_samples_fit_the_labels(
        self, opened, labels: list[str], reads_pairs: bool | None, expected: list[str]
    ) -> None:
        page = opened()
        ask = """async (model) => {
            const { samplesOf } = await import(new URL("playground/samples.js", location.href));
            return Object.values(samplesOf("classify", [], model)[0]).filter(Boolean);
        }"""
        assert page.evaluate(ask, {"labels": labels, "text_pairs": reads_pairs}) == expected

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
        page.get_by_role("button", name="shook", exact=True).hover()
        found = sync_playwright.Axe().run(page).response
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
        assert len(found["passes"]) > 20

    def test_the_page_asks_for_the_key_and_keeps_it_in_the_tab(
        self, browser, settings: ServingSettings, models: dict[str, ServedModel]
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


@pytest.fixture(scope="module")
def others(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return save_random_models(
        {
            "nli": AlbertForSequenceClassification,
            "tagger": AlbertForTokenClassification,
            "chooser": AlbertForMultipleChoice,
            "encoder": AlbertModel,
        },
        tiny_vocabulary,
        tmp_path_factory.mktemp("others"),
        seed=2,
    )


class TestOtherModels:
    """The page of a server whose models do not predict masked words."""

    @pytest.fixture
    def page(self, browser, others: dict[str, str]) -> Iterator[Any]:
        settings = ServingSettings(models=others, port=0, device="cpu", playground=True)
        watch = Watch()
        with running(settings, {name: load_model(name, settings) for name in others}) as server:
            page = watch.over(browser.new_page())
            page.goto(f"http://127.0.0.1:{server.port}/playground")
            settle(page)
            yield page
            page.close()
        assert watch.complaints == []

    def test_the_page_opens_on_what_the_models_do(self, page: Any) -> None:
        shown = page.locator("main > section:visible h2").all_inner_texts()
        assert shown == [
            *("Classify", "Classify with your own labels", "Tag words", "Choose an answer", "Compare texts"),
            *("Look inside the model", "Tokens", "Attention of each token"),
            "How the hidden states change by layer",
        ]
        assert page.locator("#about").inner_text() == (
            "nli (text-classification, zero-shot-classification), tagger (token-classification), "
            "chooser (multiple-choice), encoder (feature-extraction)"
        )
        assert page.locator("#classified").input_value() == GUITAR
        # The sentence is the first text of the page, and it has no mask.
        assert page.get_by_label("Sentence", exact=True).input_value() == GUITAR
        assert not page.locator("#candidates").is_visible()
        assert page.locator("#fill select").input_value() == "nli"
        # A row has two panels or a wide one.
        widths = [box.bounding_box()["width"] for box in page.locator("main > section:visible").all()]
        assert [width > 700 for width in widths] == [False] * 4 + [True] * 5

    def test_the_answers_are_those_of_python(self, page: Any, others: dict[str, str]) -> None:
        text = "The captain opened a silver key. My sister lost the river!"
        page.locator("#tagged").fill(text)
        settle(page)
        tag = pipeline("token-classification", others["tagger"], device="cpu", aggregation_strategy="first")
        tagged = [item.inner_text() for item in page.locator("#tags .tagged").all()]
        expected = [text[one["start"] : one["end"]] + one["entity_group"] for one in tag(text)]
        assert tagged == expected
        assert expected
        page.locator("#options").fill("A fox.\n\nThe doctor sold a house.\n")
        settle(page)
        choose = pipeline("multiple-choice", others["chooser"], device="cpu")
        choices = ["A fox.", "The doctor sold a house."]
        answer = choose(context=page.locator("#situation").input_value(), choices=choices)
        scores = sorted(zip(choices, answer["scores"], strict=True), key=lambda one: -one[1])
        assert same(rows(page, "#chosen"), scores)
        texts = [page.locator("#compared").input_value(), *page.locator("#others").input_value().split("\n")]
        embed = pipeline(
            "feature-extraction", others["encoder"], device="cpu", pooling="mean", normalize=True
        )
        first, *vectors = (np.array(vector) for vector in embed(texts))
        cosines = sorted(
            ((one, float(first @ two)) for one, two in zip(texts[1:], vectors, strict=True)),
            key=lambda one: -one[1],
        )
        assert page.locator("#cosines .name").all_inner_texts() == [name for name, _ in cosines]
        shown = [float(score) for score in page.locator("#cosines .score").all_inner_texts()]
        np.testing.assert_allclose(shown, [score for _, score in cosines], atol=6e-4)
