"""Tests of `pipeline`: models, tokenizers, devices, data types and tasks."""

import re
import shutil
import warnings

import numpy as np
import pytest
import torch
from pipeline_answers import MASKED_TEXTS, assert_same_answers

from albertkit import devices
from albertkit.errors import CheckpointError, ConfigError, ModelNotFoundError
from albertkit.modeling.heads import AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import pipeline


class TestLoading:
    def test_model_object(self, fill, folder, tokenizer):
        for model_class in (AlbertForMaskedLM, AlbertForPreTraining):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = model_class.from_pretrained(folder)
            assert_same_answers(pipeline("fill-mask", model, tokenizer)(MASKED_TEXTS), fill(MASKED_TEXTS))
        assert_same_answers(pipeline("fill-mask", model, folder)(MASKED_TEXTS), fill(MASKED_TEXTS))
        with pytest.raises(ConfigError, match="Pass tokenizer="):
            pipeline("fill-mask", model)
        with pytest.raises(ConfigError, match="already loaded"):
            pipeline("fill-mask", model, tokenizer, dtype="float16")

    def test_a_model_in_training_mode_stays_in_training_mode(self, fill, folder, tokenizer):
        model = AlbertForPreTraining.from_pretrained(folder).train()
        assert_same_answers(pipeline("fill-mask", model, tokenizer)(MASKED_TEXTS), fill(MASKED_TEXTS))
        assert model.training
        assert model.albert.embeddings.dropout.training

    @pytest.mark.parametrize(
        "load",
        [
            lambda folder: (
                pipeline("fill-mask", folder, device="cpu", model_kwargs={"disable_mmap": True}).model
            ),
            lambda folder: (
                pipeline("fill-mask", folder, engine="plain", model_kwargs={"disable_mmap": True}).model
            ),
            lambda folder: AlbertForMaskedLM.from_pretrained(folder, disable_mmap=True),
        ],
    )
    def test_weights_that_are_not_mapped(self, folder, tmp_path, load):
        shutil.copytree(folder, tmp_path / "model")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = load(tmp_path / "model")
        file = tmp_path / "model" / "model.safetensors"
        with file.open("r+b") as stream:  # in place, as cp writes
            stream.write(b"\xff" * file.stat().st_size)
        weights = model.weights.values() if hasattr(model, "weights") else model.parameters()
        assert all(np.isfinite(np.asarray(one.data)).all() for one in weights)

    def test_weights_of_a_variant_that_are_not_mapped(self, folder, tmp_path):
        shutil.copytree(folder, tmp_path / "model")
        file = (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "model.own.safetensors")
        model = AlbertForPreTraining.from_pretrained(file.parent, variant="own", disable_mmap=True)
        with file.open("r+b") as stream:
            stream.write(b"\xff" * file.stat().st_size)
        assert all(np.isfinite(one.detach().numpy()).all() for one in model.parameters())

    def test_save_pretrained_replaces_a_file_that_is_in_use(self, folder, tmp_path):
        shutil.copytree(folder, tmp_path / "model")
        answer = pipeline("fill-mask", tmp_path / "model")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = AlbertForPreTraining.from_pretrained(folder)
        for parameter in model.parameters():
            parameter.data.zero_()
        model.save_pretrained(tmp_path / "model")
        assert answer(MASKED_TEXTS) == pipeline("fill-mask", folder)(MASKED_TEXTS)

    def test_a_fast_tokenizer_has_the_same_answers(self, fill, folder):
        fast = pipeline("fill-mask", folder, use_fast=True)
        assert type(fast.tokenizer).__name__ == "AlbertTokenizerFast"
        assert fast(MASKED_TEXTS) == fill(MASKED_TEXTS)

    @pytest.mark.parametrize("device", [{}, {"device": "auto"}, {"device_map": "auto"}])
    def test_engines_of_the_cpu_load_a_model_there_by_default(self, folder, monkeypatch, device):
        monkeypatch.setattr(devices, "best_device", lambda: torch.device("meta"))  # in place of a GPU
        answers = pipeline("fill-mask", folder, engine="onnx", **device)("She opened the [MASK].")
        assert_same_answers(pipeline("fill-mask", folder, device="cpu")("She opened the [MASK]."), answers)
        with pytest.raises(ConfigError, match="meta"):
            pipeline("fill-mask", folder, **device)

    def test_devices(self, folder):
        assert pipeline("fill-mask", folder, device=-1).device.type == "cpu"
        assert pipeline("fill-mask", folder, device="cpu").device.type == "cpu"
        assert pipeline("fill-mask", folder, device_map="auto").device.type in ("cpu", "cuda", "mps")
        with pytest.raises(ConfigError, match=r"^there is no device 'gpu'\. Expected 'auto' .*: cpu[^.]*\.$"):
            pipeline("fill-mask", folder, device="gpu")
        with pytest.raises(ConfigError, match="cuda:97"):
            pipeline("fill-mask", folder, device="cuda:97")
        with pytest.raises(ConfigError, match="device and device_map are one setting"):
            pipeline("fill-mask", folder, device="cpu", device_map="cuda")

    @pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="needs no GPU")
    def test_gpu_number_without_a_gpu_warns(self, folder):
        with pytest.warns(UserWarning, match="device=0, but this machine has no GPU"):
            assert pipeline("fill-mask", folder, device=0).device.type == "cpu"

    def test_dtype(self, fill, folder):
        half = pipeline("fill-mask", folder, torch_dtype="bfloat16")
        assert half.model.dtype == torch.bfloat16
        assert half("the [MASK]")[0]["score"] == pytest.approx(fill("the [MASK]")[0]["score"], rel=0.2)

    def test_unknown_task_and_names(self, folder, tmp_path):
        with pytest.raises(
            ConfigError,
            match=r"there is no pipeline for the task 'fill_mask' \(did you mean 'fill-mask'\?\)\. Expected",
        ):
            pipeline("fill_mask", folder)
        for task in ("text-generation", "sentence-similarity"):
            with pytest.raises(
                ConfigError,
                match=rf"the task {re.escape(repr(task))}.* Expected one of fill-mask, .*, zero-shot",
            ):
                pipeline(task)
        with pytest.raises(ConfigError, match="the task is None"):
            pipeline()
        with pytest.raises(ModelNotFoundError, match="no folder"):
            pipeline("fill-mask", tmp_path / "missing")
        with pytest.raises(ModelNotFoundError, match="albert-base-v2"):
            pipeline("fill-mask", "albert-base-v2", local_files_only=True, cache_dir=tmp_path)

    def test_a_folder_with_the_name_of_a_task(self, fill, folder, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ModelNotFoundError, match="There is no model 'ner': no folder"):
            pipeline(model="ner")
        (tmp_path / "ner").symlink_to(folder)
        assert pipeline(model="ner")(MASKED_TEXTS) == fill(MASKED_TEXTS)
        with pytest.raises(ConfigError, match="no pipeline for the task 'bundled'"):
            pipeline("bundled", "ner")

    def test_task_of_the_model(self, fill, encode, folder, tokenizer, tmp_path):
        by_name = pipeline(model=folder)  # saved by AlbertForPreTraining
        assert by_name(MASKED_TEXTS) == fill(MASKED_TEXTS)
        for model_class in (AlbertForMaskedLM, AlbertForPreTraining):
            model = model_class.from_pretrained(folder)
            assert_same_answers(pipeline(model=model, tokenizer=tokenizer)(MASKED_TEXTS), fill(MASKED_TEXTS))
        encoder = AlbertModel.from_pretrained(folder)
        np.testing.assert_allclose(
            pipeline(model=encoder, tokenizer=tokenizer)("the word"), encode("the word"), atol=1e-5
        )
        encoder.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        assert pipeline(model=tmp_path)("the word") == encode("the word")
        classifier = AlbertForSequenceClassification(encoder.config)
        assert pipeline(model=classifier, tokenizer=tokenizer).task == "text-classification"

    def test_checkpoint_without_the_head_is_an_error(self, folder, tokenizer, tmp_path):
        AlbertModel.from_pretrained(folder).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        with pytest.raises(CheckpointError, match=r"not trained for fill-mask.*predictions\.bias"):
            pipeline("fill-mask", tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing is missing for features
            pipeline("feature-extraction", tmp_path)

    def test_model_and_tokenizer_must_fit(self, folder, tokenizer):
        model = AlbertForMaskedLM.from_pretrained(folder)
        model.resize_token_embeddings(100)
        with pytest.raises(ConfigError, match="do not belong together"):
            pipeline("fill-mask", model, tokenizer)
        with pytest.raises(
            ConfigError, match=r"AlbertForMaskedLM or AlbertForPreTraining, got albertkit\.AlbertModel"
        ):
            pipeline("fill-mask", AlbertModel.from_pretrained(folder), tokenizer)
