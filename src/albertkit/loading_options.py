"""Options of `transformers` for loading and saving: which of them are taken, and which are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError

# What this package has nothing to do with.
# fmt: off
_UNSUPPORTED = frozenset((
    "adapter_kwargs", "adapter_name", "allow_all_kernels", "code_revision", "device_mesh",
    "disable_mmap", "distributed_config", "force_download", "from_flax", "from_tf", "fusion_config",
    "generation_config", "gguf_file", "kernel_config", "key_mapping", "load_in_4bit",
    "load_in_8bit", "max_memory", "mirror", "offload_buffers", "offload_folder",
    "offload_state_dict", "proxies", "quantization_config", "resume_download",
    "return_unused_kwargs", "tp_plan", "tp_size", "tqdm_class", "use_auth_token",
    "use_kernels", "variant",
))
# fmt: on


def take_loading_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of these keyword arguments of `from_pretrained` without `transformers`' loading options.

    Here `low_cpu_mem_usage` makes no difference (memory is always used sparingly), nor does
    `trust_remote_code` (no code of a checkpoint is ever run); `weights_only` can only be True, and
    `use_safetensors` only None or True. Other loading options may be given as None, False or "".

    Raises:
        ConfigError: an option that asks for what is not supported.
    """
    if not options.get("weights_only", True):
        raise ConfigError("weights_only=False is not supported: no code of a checkpoint is ever run")
    if options.get("use_safetensors") is False:
        raise ConfigError(
            "use_safetensors=False is not supported: safetensors are read where there are any; leave it out"
        )
    for name in sorted(_UNSUPPORTED & options.keys()):
        if options[name] not in (None, False, "", {}):
            raise ConfigError(
                f"{name}: this loading option of transformers is not supported here; leave it out"
            )
    taken = {"low_cpu_mem_usage", "trust_remote_code", "use_safetensors", "weights_only"}
    return {name: value for name, value in options.items() if name not in taken and name not in _UNSUPPORTED}


def refuse_push_to_hub(push_to_hub: bool, save_directory: str | Path) -> None:
    """Raise ConfigError where saving is to upload the folder too, and name the command that uploads it."""
    if push_to_hub:
        raise ConfigError(
            "push_to_hub=True is not supported: save the folder, then upload it with "
            f"`hf upload ORGANIZATION/MODEL {save_directory}`"
        )
