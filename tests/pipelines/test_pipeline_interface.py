"""Tests of the attributes, methods and arguments that pipelines share with pipelines of transformers."""

import json

import numpy as np
import pytest
import torch
import transformers
from pipeline_inputs import CHOICE, QUESTION, TEXTS

from albertkit.errors import ConfigError
from albertkit.pipelines import Pipeline, pipeline


class TestAsInTransformers:
    def test_attributes_and_methods(self, made, classify, tmp_path):
        assert classify.predict(TEXTS) == classify.transform(TEXTS) == classify(TEXTS)
        assert classify.dtype == classify.torch_dtype == torch.float32
        assert classify.device == torch.device("cpu")
        for task, one in made.items():
            assert one.task == task
            assert one.model.config.vocab_size == len(one.tokenizer)
        classify.save_pretrained(tmp_path)
        again = pipeline("text-classification", tmp_path)(TEXTS)
        assert [one["label"] for one in again] == [one["label"] for one in classify(TEXTS)]
        assert [one["score"] for one in again] == pytest.approx([one["score"] for one in classify(TEXTS)])
        assert transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).num_labels == 3

    def test_pipelines_of_a_loaded_model(self, made):
        for task, one in made.items():
            again = Pipeline(
                model=one.model, tokenizer=one.tokenizer, task=task, device="cpu", num_workers=0, batch_size=4
            )
            assert (again.task, again.batch_size) == (task, 4)
        one = made["fill-mask"]
        fill = Pipeline(one.model, one.tokenizer, "fill-mask", top_k=2)
        assert fill("a [MASK]") == one("a [MASK]", top_k=2)
        with pytest.raises(ConfigError, match=r"token-classification needs a model of class"):
            Pipeline(one.model, one.tokenizer, task="ner")
        with pytest.raises(ConfigError, match=r"received a builtins\.str\. .*pipeline\(task, model=\.\.\.\)"):
            Pipeline("bundled", one.tokenizer, "fill-mask")

    def test_return_tensors(self, made):
        encode = made["feature-extraction"]
        lists = encode(TEXTS)
        for kind, kind_of in ((True, torch.Tensor), ("pt", torch.Tensor), ("np", np.ndarray)):
            found = encode(TEXTS, return_tensors=kind)
            assert all(isinstance(one, kind_of) for one in found)
            assert [one.tolist() for one in found] == lists
            assert type(encode(TEXTS[0], pooling="mean", return_tensors=kind)) is kind_of
        one = Pipeline(encode.model, encode.tokenizer, "feature-extraction", return_tensors="np")
        assert isinstance(one(TEXTS[0]), np.ndarray)
        assert one(TEXTS[0], return_tensors=False) == encode(TEXTS[0])
        with pytest.raises(ConfigError, match=r"return_tensors is 'tf'. Expected True, False, 'pt' or 'np'"):
            encode(TEXTS, return_tensors="tf")

    def test_objects_of_transformers_are_an_error(self, made, tmp_path):
        made["text-classification"].save_pretrained(tmp_path)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
        with pytest.raises(ConfigError, match=r"received a transformers\.AlbertForSequenceClassification"):
            pipeline("text-classification", model, made["fill-mask"].tokenizer)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
        with pytest.raises(
            ConfigError, match=r"tokenizer is a transformers\.\w+\. Expected a tokenizer of albertkit"
        ):
            pipeline("fill-mask", made["fill-mask"].model, tokenizer)

    def test_arguments_of_the_factory(self, made, classify, tmp_path):
        classify.save_pretrained(tmp_path)
        kwargs = {"dtype": "bfloat16", "device_map": "cpu", "attention_probs_dropout_prob": 0.25}
        one = pipeline(
            "text-classification", tmp_path, model_kwargs=kwargs, trust_remote_code=True, num_workers=1
        )
        assert one.dtype == torch.bfloat16
        assert one.model.config.attention_probs_dropout_prob == 0.25
        assert len(kwargs) == 3  # the dict of the caller does not change
        with pytest.raises(ConfigError, match="dtype and model_kwargs are one setting"):
            pipeline("text-classification", tmp_path, dtype="float32", model_kwargs=kwargs)
        with pytest.raises(ConfigError, match=r"already loaded\. Omit config, dtype"):
            pipeline("text-classification", classify.model, classify.tokenizer, model_kwargs={"x": 1})

        class Mine(Pipeline):
            pass

        assert isinstance(pipeline(model=tmp_path, pipeline_class=Mine), Mine)


def test_answers_are_plain_json(made):
    for task, given in (("question-answering", dict(QUESTION)), ("multiple-choice", dict(CHOICE))):
        json.dumps(made[task]([given]), allow_nan=False)
