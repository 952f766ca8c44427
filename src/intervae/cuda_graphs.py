"""CUDA graphs: how captures share a GPU, and functions that are replayed instead of launched.

A call of a small network launches hundreds of kernels, which takes the host longer than the GPU
computes. `Replays` captures the second call with the same shapes, and replays it from then on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

CAPTURING = threading.Lock()  # one capture at a time if several runs share a GPU
MOST_GRAPHS = 8  # of one `Replays`; the oldest is dropped
_CAPTURE_STREAMS: dict[torch.device, torch.cuda.Stream] = {}  # of the main thread

Function = Callable[..., tuple[Tensor, ...]]


def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the current stream, or another one if it is the default, which cannot be captured.

    The other one is shared by all captures: torch has a pool of 32 streams, so a new one for each
    capture could be a stream on which another thread works, whose kernels would be captured too.
    """
    current = torch.cuda.current_stream(device)
    if current != torch.cuda.default_stream(device):
        return current
    if device not in _CAPTURE_STREAMS:
        _CAPTURE_STREAMS[device] = torch.cuda.Stream(device)
    return _CAPTURE_STREAMS[device]


@dataclass(frozen=True)
class _Graph:
    """A captured call: the tensors that it reads and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def replay(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for own, tensor in zip(self.inputs, tensors, strict=True):
            own.copy_(tensor)
        self.graph.replay()
        return tuple(output.clone() for output in self.outputs)


class _State(Enum):
    CALLED = "called once"
    PLAIN = "cannot be captured"


class Replays:
    """Calls functions of a module's weights and of tensors, as CUDA graphs where that is possible.

    A graph is replayed without gradients and autocast, for the same shapes, constants, arithmetic,
    stream and places of the weights, which may change in place. Elsewhere, and where a capture
    fails, the function is called as it is. A copy has no graphs.
    """

    def __init__(self) -> None:
        self.graphs: OrderedDict[Hashable, _Graph | _State] = OrderedDict()
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Replays], tuple[()]]:
        return Replays, ()

    def __call__(
        self,
        module: nn.Module,
        name: str,
        function: Function,
        *tensors: Tensor,
        constants: Hashable = (),
    ) -> tuple[Tensor, ...]:
        """Return `function(*tensors)`.

        Arguments:
            module: whose weights the function reads.
            name: of the function, its own in this module.
            constants: what else the result depends on.
        """
        conditions = _conditions(module, tensors) if _can_replay(tensors) else None
        if conditions is None:
            return function(*tensors)
        with self.lock:
            key = (name, constants, conditions)
            state = self.graphs.pop(key, None)
            if state is _State.CALLED:
                state = _capture(function, tensors)
            self.graphs[key] = state or _State.CALLED  # the newest is the last
            while len(self.graphs) > MOST_GRAPHS:
                self.graphs.popitem(last=False)
            if isinstance(state, _Graph):
                return state.replay(tensors)
        return function(*tensors)


def _can_replay(tensors: tuple[Tensor, ...]) -> bool:
    if (
        torch.compiler.is_compiling()
        or torch.is_grad_enabled()
        or torch.is_inference_mode_enabled()
    ):
        return False
    return (
        all(tensor.is_cuda for tensor in tensors)
        and not torch.is_autocast_enabled("cuda")  # its cache of weights would be captured
        and not torch.cuda.is_current_stream_capturing()
        and not torch._C._are_functorch_transforms_active()
    )


def _conditions(module: nn.Module, tensors: tuple[Tensor, ...]) -> Hashable | None:
    """Return what a graph holds for; None if the arithmetic cannot be read."""
    cudnn = torch.backends.cudnn
    try:
        arithmetic = (
            torch.get_float32_matmul_precision(),
            cudnn.allow_tf32,
            cudnn.deterministic,
            cudnn.benchmark,
        )
    except RuntimeError:  # set by the newer names of torch
        return None
    return (
        tuple((tuple(t.shape), t.dtype, t.device) for t in tensors),
        tuple(t.data_ptr() for t in (*module.parameters(), *module.buffers())),
        torch.cuda.current_stream(tensors[0].device).cuda_stream,
        arithmetic,
        module.training,
    )


def _capture(function: Function, tensors: tuple[Tensor, ...]) -> _Graph | _State:
    device = tensors[0].device
    try:
        inputs = tuple(tensor.detach().clone() for tensor in tensors)
        with CAPTURING:
            stream = capture_stream(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                function(*inputs)
            torch.cuda.current_stream(device).wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                outputs = function(*inputs)
    except RuntimeError:  # too little memory, or a function that waits for the GPU
        return _State.PLAIN
    return _Graph(graph, inputs, outputs)
