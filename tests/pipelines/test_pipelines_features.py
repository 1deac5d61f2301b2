"""Tests of `feature-extraction`: the vectors of transformers, pooling and truncation."""

import numpy as np
import pytest
import torch
import transformers

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError, DataError
from albertkit.modeling.heads import AlbertForSequenceClassification
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import pipeline

LIMIT = 40


class TestFeatureExtraction:
    def test_equals_transformers(self, encode, folder, their_tokenizer):
        model = transformers.AlbertModel.from_pretrained(folder)
        theirs = transformers.pipeline(
            "feature-extraction", model=model, tokenizer=their_tokenizer, device=-1
        )
        text = "the harbour opened the word"
        np.testing.assert_allclose(encode(text), theirs(text), atol=1e-5)
        assert np.shape(encode(text))[0] == 1
        ours = encode([text, "my sister"])
        for one, other in zip(ours, theirs([text, "my sister"]), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)

    def test_arguments_of_the_tokenizer_as_in_transformers(self, encode, folder, their_tokenizer):
        model = transformers.AlbertModel.from_pretrained(folder)
        theirs = transformers.pipeline(
            "feature-extraction", model=model, tokenizer=their_tokenizer, device=-1
        )
        long = "the harbour opened the word " * 4
        for options in (
            {"tokenize_kwargs": {"truncation": True, "max_length": 6}},
            {"truncation": True, "tokenize_kwargs": {"max_length": 5}},
        ):
            for text in ("", "a", "\U0001f600 word", long):
                expected = theirs(text, **{**options, "tokenize_kwargs": {**options["tokenize_kwargs"]}})
                np.testing.assert_allclose(encode(text, **options), expected, atol=1e-5)
        assert (
            np.shape(encode(long, truncation=True, max_length=7, tokenize_kwargs={"padding": True}))[1] == 7
        )
        with pytest.raises(ConfigError, match=r"tokenize_kwargs: unknown argument 'stride'"):
            encode(long, tokenize_kwargs={"stride": 3})
        with pytest.raises(ConfigError, match=r"max_length is 2. Expected a whole number of at least 3"):
            encode(long, truncation=True, max_length=2)

    def test_pooling(self, encode):
        text = "the harbour opened the word"
        vectors = encode(text, return_tensors=True)[0]
        assert vectors.shape == (len(encode.tokenizer(text)["input_ids"]), 32)
        # in a batch with a longer text, so that there is padding
        mean, _ = encode([text, text * 2], pooling="mean", return_tensors=True)
        torch.testing.assert_close(mean, vectors.mean(dim=0), atol=1e-5, rtol=0)
        cls, _ = encode([text, text * 2], pooling="cls")
        np.testing.assert_allclose(cls, vectors[0].tolist(), atol=1e-5)
        with pytest.raises(ConfigError, match=r"pooling is 'median'. Expected one of mean, cls"):
            encode(text, pooling="median")

    def test_long_texts_are_truncated_only_on_request(self, encode):
        long = "word " * (LIMIT - 1)
        with pytest.raises(DataError, match=f"{LIMIT + 1} tokens .* maximum is {LIMIT}.*truncation=True"):
            encode(long)
        cut = encode(long, truncation=True, return_tensors=True)
        torch.testing.assert_close(cut, encode("word " * (LIMIT - 2), return_tensors=True), atol=1e-5, rtol=0)

    def test_an_empty_text_causes_a_warning(self, encode):
        with pytest.warns(
            UserWarning, match="a text is empty, so its vector is computed from special tokens"
        ):
            encode(["a word", " "], pooling="mean")

    def test_special_tokens_as_plain_text(self, encode):
        assert len(encode("a [SEP]")[0]) == len(encode("a")[0]) + 1
        assert len(encode("a [SEP]", parse_special_tokens=False)[0]) > len(encode("a [SEP]")[0])

    def test_model_with_a_head(self, encode, folder, tokenizer):
        model = AlbertForSequenceClassification(AlbertConfig.from_pretrained(folder))
        model.albert.load_state_dict(AlbertModel.from_pretrained(folder).state_dict())
        features = pipeline("feature-extraction", model, tokenizer)("the word")
        np.testing.assert_allclose(features, encode("the word"), atol=1e-5)
