"""A pretended CUDA device, to run code for GPUs on a machine without a GPU.

    PYTHONPATH=dev/pretended_gpu python -m pytest tests/gpu
    PYTHONPATH=dev/pretended_gpu python scripts/gpu.py --tiny --shards carried --output gpu/pretended

Its tensors say that they are on "cuda:0", and the CPU computes them. As on a GPU, an operation that mixes
tensors of both devices raises an error, and NumPy cannot read the tensors. Everything that asks PyTorch for a
GPU finds one. So code for GPUs runs, with right numbers and at a useless speed.

The pretended device does not show what depends on a GPU's kernels: rounding, atomic additions, memory and
asynchronous execution. It needs g++ and PyTorch's build without CUDA.
"""

import contextlib
import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SOURCE = Path(__file__).with_name("device.cpp")


def register_device() -> None:
    """Compile `device.cpp` once, and load it. This must happen before the import of PyTorch."""
    spec = importlib.util.find_spec("torch")
    assert spec
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    content = SOURCE.read_bytes() + importlib.metadata.version("torch").encode()
    library = Path(tempfile.gettempdir()) / f"pretended-gpu-{hashlib.sha256(content).hexdigest()[:12]}.so"
    if not library.exists():
        unfinished = library.with_suffix(f".{os.getpid()}")
        command = ["g++", "-std=c++20", "-shared", "-fPIC", str(SOURCE), "-o", str(unfinished)]
        command += [f"-I{package / 'include'}", f"-L{package / 'lib'}", "-lc10", "-ltorch_cpu"]
        subprocess.run(command, check=True)
        unfinished.rename(library)
    for name in (package / "lib" / "libc10.so", package / "lib" / "libtorch_cpu.so", library):
        ctypes.CDLL(str(name), ctypes.RTLD_GLOBAL)


register_device()

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

aten = torch.ops.aten
DEVICE = torch.device("cuda:0")
MOVES = (aten._to_copy.default, aten.copy_.default)
INDEXED = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default)
MATH = 0  # the number of the attention kernel that every device has


class PretendedTensor(torch.Tensor):
    """A tensor that says it is on the GPU; `on_cpu` has its values."""

    on_cpu: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "PretendedTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=DEVICE,
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.on_cpu = inner.detach()

    def __repr__(self, **_: Any) -> str:
        return f"PretendedTensor({self.on_cpu!r})"

    def tolist(self) -> Any:
        return self.on_cpu.tolist()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["on_cpu"], None

    @staticmethod
    def __tensor_unflatten__(tensors: dict[str, torch.Tensor], *_: Any) -> "PretendedTensor":
        return PretendedTensor(tensors["on_cpu"])

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(operation, args, kwargs or {})


class Pretending(TorchDispatchMode):
    """Makes operations on the GPU compute, also those that create a tensor."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(operation, args, kwargs or {})


def compute(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU; its results are on the device where PyTorch would have them."""
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    pretended = [tensor for tensor in tensors if isinstance(tensor, PretendedTensor)]
    device = None if kwargs.get("device") is None else torch.device(kwargs["device"]).type
    if not pretended and device != DEVICE.type:
        return operation(*args, **kwargs)
    if operation is aten._fused_sdp_choice.default:
        return MATH
    if operation is aten.is_pinned.default:
        return False
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        operation.name(), "CompositeImplicitAutograd"
    )
    if is_composite and operation is not aten._to_copy.default:
        with Pretending():
            result = operation.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
    check_devices(operation, args, tensors)
    inner_args, inner_kwargs = tree_map(lambda value: getattr(value, "on_cpu", value), (args, kwargs))
    inner_kwargs.pop("pin_memory", None)
    if "device" in inner_kwargs:
        inner_kwargs["device"] = "cpu"
    if operation is aten.copy_.default:
        inner_args[0].copy_(inner_args[1])
        return args[0]
    result = operation(*inner_args, **inner_kwargs)
    if device == "cpu" or (operation is aten._to_copy.default and device is None and not pretended):
        return result.clone() if result is inner_args[0] else result
    # An operation that changes a tensor returns this tensor.
    known = {id(tensor.on_cpu): tensor for tensor in pretended}

    def wrapped(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return known[id(value)] if id(value) in known else PretendedTensor(value)

    return tree_map(wrapped, result)


def check_devices(operation: Any, args: tuple[Any, ...], tensors: list[torch.Tensor]) -> None:
    """Raise an error if PyTorch does not accept tensors of both devices in this operation.

    Raises:
        RuntimeError: Tensors on the CPU, other than numbers, meet tensors on the GPU.
    """
    if operation in MOVES:
        return
    others = [tensor for tensor in tensors if not isinstance(tensor, PretendedTensor)]
    if operation in INDEXED and isinstance(args[0], PretendedTensor):  # indices may be on the CPU
        others = [value for value in args[2:3] if isinstance(value, torch.Tensor) and value in others]
    is_changed = operation._schema.is_mutable and any(value is args[0] for value in others)
    if len(others) < len(tensors) and (is_changed or any(tensor.dim() for tensor in others)):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {operation} got tensors on cuda:0, and "
            f"others on the CPU, with the shapes {[tuple(tensor.shape) for tensor in others]}"
        )


class Event:
    """An event that happens when it is recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.seconds = 0.0

    def record(self, *_: Any) -> None:
        self.seconds = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "Event") -> float:
        return (end.seconds - self.seconds) * 1000


def varlen_attention(
    query: Any, key: Any, value: Any, query_ends: Any, key_ends: Any, longest_query: int, longest_key: int
) -> Any:
    """Compute `torch.nn.attention.varlen.varlen_attn` row by row, with the kernel's conditions."""
    for tensor in (query, key, value):
        assert tensor.is_cuda
        assert tensor.dtype in (torch.float16, torch.bfloat16)
        assert tensor.dim() == 3
        assert tensor.stride(-1) == 1
    assert query_ends.is_cuda
    assert query_ends.dtype == key_ends.dtype == torch.int32
    starts, key_starts = query_ends.tolist(), key_ends.tolist()
    assert (starts[-1], key_starts[-1]) == (len(query), len(key))
    contexts = torch.empty_like(query)
    rows = zip(pairwise(starts), pairwise(key_starts), strict=True)
    for (start, stop), (key_start, key_stop) in rows:
        assert stop - start <= longest_query
        assert key_stop - key_start <= longest_key
        if stop > start:
            parts = (query[start:stop], key[key_start:key_stop], value[key_start:key_stop])
            context = torch.nn.functional.scaled_dot_product_attention(
                *(part.transpose(0, 1).float() for part in parts)
            )
            contexts[start:stop] = context.transpose(0, 1).to(query.dtype)
    return contexts


def _returning(result: Any) -> Any:
    return lambda *_, **__: result


def install() -> None:
    """Make PyTorch find the pretended GPU, in this thread and in threads that start later."""
    properties = SimpleNamespace(name="pretended GPU", total_memory=80 * 2**30, major=8, minor=0)
    generator_state = torch.zeros(16, dtype=torch.uint8)
    results = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties,
        "is_bf16_supported": True,
        "max_memory_allocated": 10**6,
        "memory_allocated": 10**6,
        "mem_get_info": (70 * 2**30, 80 * 2**30),
        "get_rng_state": generator_state,
        "get_rng_state_all": [generator_state],
        "device": contextlib.nullcontext(),
    }
    ignored = "_lazy_init empty_cache manual_seed manual_seed_all reset_peak_memory_stats set_device"
    ignored += " set_rng_state set_rng_state_all synchronize"
    for name, result in (results | dict.fromkeys(ignored.split())).items():
        setattr(torch.cuda, name, _returning(result))
    torch.cuda.Event = Event  # type: ignore[assignment,misc]
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch._C._set_only_lift_cpu_tensors(True)
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign]

    class InferenceMode(torch.no_grad):  # views of subclasses fail in PyTorch's own inference mode
        def __init__(self, *_: bool) -> None:
            super().__init__()

    torch.inference_mode = InferenceMode  # type: ignore[assignment,misc]
    from torch.nn.attention import varlen

    varlen.varlen_attn = varlen_attention  # type: ignore[assignment]
    initialize = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda backend=None, *args, **kwargs: initialize(
        "gloo" if backend == "nccl" else backend, *args, **kwargs
    )
    from albertkit import devices

    devices._has_accelerator = lambda: True
    run = threading.Thread.run

    def run_pretending(thread: threading.Thread) -> None:
        with Pretending():
            run(thread)

    threading.Thread.run = run_pretending  # type: ignore[method-assign]
    Pretending().__enter__()
