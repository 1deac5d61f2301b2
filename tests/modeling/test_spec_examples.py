"""The documented PyTorch examples of ALBERT in `transformers` run with `albertkit` in its place.

Each test is one example: the same calls, with a local folder for the name of the published model.
"""

from pathlib import Path

import pytest
import torch

from albertkit import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertModel,
    AlbertTokenizer,
    AutoModelForMaskedLM,
    AutoTokenizer,
    pipeline,
)

HIDDEN = 48


@pytest.fixture(scope="module")
def albert_base_v2(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder that stands for the published model: smaller, and random."""
    return save_small_model(tiny_vocabulary, tmp_path_factory.mktemp("models") / "albert-base-v2")


def save_small_model(vocabulary: Path, folder: Path) -> str:
    tokenizer = AlbertTokenizer(vocabulary)
    config = AlbertConfig.preset(
        "base",
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=3,
    )
    torch.manual_seed(0)
    AlbertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


# --- the study notes --------------------------------------------------------------------------------


def test_features_of_a_text(albert_base_v2):
    tokenizer = AlbertTokenizer.from_pretrained(albert_base_v2)
    model = AlbertModel.from_pretrained(albert_base_v2)
    text = "Replace me by any text you'd like."
    encoded_input = tokenizer(text, return_tensors="pt")
    output = model(**encoded_input)
    assert type(output).__name__ == "BaseModelOutputWithPooling"
    assert list(output.keys()) == ["last_hidden_state", "pooler_output"]
    assert output.last_hidden_state.shape == (1, encoded_input["input_ids"].shape[1], HIDDEN)
    assert output.pooler_output.shape == (1, HIDDEN)
    assert output.last_hidden_state.requires_grad


def test_unmasker(albert_base_v2):
    unmasker = pipeline("fill-mask", model=albert_base_v2)
    answers = unmasker("spaCy is [MASK] to help you do real work — to build real products,")
    assert len(answers) == 5
    assert [set(answer) for answer in answers] == [{"score", "token", "token_str", "sequence"}] * 5
    scores = [answer["score"] for answer in answers]
    assert scores == sorted(scores, reverse=True)


def test_unmasker_spells_the_documented_answers(shared, tmp_path):
    """With the published vocabulary: ids, words and sequences as printed in the notes."""
    unmasker = pipeline("fill-mask", model=save_small_model(shared / "data" / "spiece.model", tmp_path / "m"))
    text = "spaCy is [MASK] to help you do real work — to build real products,"
    documented = {"meant": 1380, "supposed": 2293, "designed": 1006, "something": 301, "done": 677}
    answers = unmasker(text, targets=list(documented))
    assert {answer["token_str"]: answer["token"] for answer in answers} == documented
    for answer in answers:
        # the dash is no piece of the vocabulary, so two spaces stay
        expected = f"spacy is {answer['token_str']} to help you do real work  to build real products,"
        assert answer["sequence"] == expected


# --- the current model page -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:device=0, but this machine has no GPU")
def test_pipeline_on_the_first_gpu(albert_base_v2):
    fill = pipeline(task="fill-mask", model=albert_base_v2, device=0)
    answers = fill("Plants create [MASK] through a process known as photosynthesis.", top_k=5)
    assert len(answers) == 5
    assert all(answer["sequence"].endswith("photosynthesis.") for answer in answers)


def test_auto_model(albert_base_v2, capsys):
    tokenizer = AutoTokenizer.from_pretrained(albert_base_v2)
    model = AutoModelForMaskedLM.from_pretrained(
        albert_base_v2, attn_implementation="sdpa", device_map="auto"
    )

    prompt = "Plants create energy through a process known as [MASK]."
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)

    with torch.no_grad():
        outputs = model(**inputs)
        mask_token_index = torch.where(inputs["input_ids"] == tokenizer.mask_token_id)[1]
        predictions = outputs.logits[0, mask_token_index]

    top_k = torch.topk(predictions, k=5).indices.tolist()
    for token_id in top_k[0]:
        print(f"Prediction: {tokenizer.decode([token_id])}")

    printed = capsys.readouterr().out.splitlines()
    answers = pipeline("fill-mask", albert_base_v2)(prompt, top_k=5)
    assert printed == [f"Prediction: {answer['token_str']}" for answer in answers]


# --- the model card ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["Hello I'm a [MASK] model.", "The man worked as a [MASK].", "The woman worked as a [MASK]."]
)
def test_model_card_sentences(albert_base_v2, text):
    unmasker = pipeline("fill-mask", model=albert_base_v2)
    answers = unmasker(text)
    assert len({answer["token"] for answer in answers}) == 5
    assert all(0 < answer["score"] < 1 for answer in answers)


def test_model_card_sequences(shared, tmp_path):
    """With the published vocabulary: the card's ids and sequences, as the current pipeline spells them."""
    unmasker = pipeline("fill-mask", model=save_small_model(shared / "data" / "spiece.model", tmp_path / "m"))
    for text, word, token in [
        ("Hello I'm a [MASK] model.", "modeling", 12807),
        ("The man worked as a [MASK].", "chauffeur", 28744),
        ("The woman worked as a [MASK].", "receptionist", 25331),
    ]:
        (answer,) = unmasker(text, targets=word)
        assert (answer["token_str"], answer["token"]) == (word, token)
        assert answer["sequence"] == text.lower().replace("[mask]", word)


# --- the API documentation --------------------------------------------------------------------------


def test_configuration():
    albert_xxlarge_configuration = AlbertConfig()
    albert_base_configuration = AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    with torch.device("meta"):  # 223 million parameters: only their shapes here
        model = AlbertModel(albert_xxlarge_configuration)
    configuration = model.config
    assert configuration.hidden_size == 4096
    assert albert_base_configuration.num_hidden_layers == 12


def test_albert_for_masked_lm(albert_base_v2):
    tokenizer = AlbertTokenizer.from_pretrained(albert_base_v2)
    model = AlbertForMaskedLM.from_pretrained(albert_base_v2)
    input_ids = torch.tensor(tokenizer.encode("Hello, my dog is cute", add_special_tokens=True)).unsqueeze(0)
    with pytest.warns(FutureWarning, match="masked_lm_labels is deprecated"):
        outputs = model(input_ids, masked_lm_labels=input_ids)
    loss, prediction_scores = outputs[:2]
    assert prediction_scores.shape == (*input_ids.shape, len(tokenizer))
    expected = torch.nn.functional.cross_entropy(prediction_scores[0], input_ids[0])
    torch.testing.assert_close(loss, expected)


@pytest.mark.filterwarnings("ignore:AlbertForSequenceClassification from")  # its head is drawn anew
def test_albert_for_sequence_classification(albert_base_v2):
    tokenizer = AlbertTokenizer.from_pretrained(albert_base_v2)
    model = AlbertForSequenceClassification.from_pretrained(albert_base_v2)
    input_ids = torch.tensor(tokenizer.encode("Hello, my dog is cute")).unsqueeze(0)
    labels = torch.tensor([1]).unsqueeze(0)
    outputs = model(input_ids, labels=labels)
    loss, logits = outputs[:2]
    assert logits.shape == (1, 2)
    torch.testing.assert_close(loss, -logits.log_softmax(dim=-1)[0, 1])


@pytest.mark.filterwarnings("ignore:AlbertForQuestionAnswering from")  # its head is drawn anew
def test_albert_for_question_answering(albert_base_v2):
    tokenizer = AlbertTokenizer.from_pretrained(albert_base_v2)
    model = AlbertForQuestionAnswering.from_pretrained(albert_base_v2)
    question, text = "Who was Jim Henson?", "Jim Henson was a nice puppet"
    input_dict = tokenizer.encode_plus(question, text, return_tensors="pt")
    start_scores, end_scores = model(**input_dict)
    assert start_scores.shape == end_scores.shape == input_dict["input_ids"].shape
    assert not torch.equal(start_scores, end_scores)
