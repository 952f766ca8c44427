"""CUDA graphs: how captures share a GPU, and functions that are replayed instead of launched.

A call of a small network launches hundreds of kernels, which takes the host longer than the GPU
computes. `Replays` captures the second call with the same shapes, and replays it from then on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

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


class Replays:
    """Calls functions of a module's weights and of tensors, as CUDA graphs where that is possible.

    A graph is replayed without gradients, for the same shapes, constants, precision, stream and
    places of the weights, which may change in place. Elsewhere the function is called as it is.

    Arguments:
        module: whose weights the functions read.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.graphs: OrderedDict[Hashable, _Graph | None] = OrderedDict()  # None: called once
        self.lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Replays:
        return Replays(memo.get(id(self.module), self.module))

    def __call__(
        self, function: Function, *tensors: Tensor, constants: Hashable = ()
    ) -> tuple[Tensor, ...]:
        """Return `function(*tensors)`.

        Arguments:
            constants: what else the result depends on.
        """
        if not _can_replay(tensors):
            return function(*tensors)
        name = getattr(function, "func", function).__name__  # of a partial
        with self.lock:
            key = (name, constants, self._conditions(tensors))
            if key not in self.graphs:
                self.graphs[key] = None
                while len(self.graphs) > MOST_GRAPHS:
                    self.graphs.popitem(last=False)
                return function(*tensors)
            self.graphs.move_to_end(key)
            graph = self.graphs[key]
            if graph is None:
                graph = self.graphs[key] = _capture(function, tensors)
            return graph.replay(tensors)

    def _conditions(self, tensors: tuple[Tensor, ...]) -> Hashable:
        device = tensors[0].device
        return (
            tuple((tuple(t.shape), t.dtype, t.device) for t in tensors),
            tuple(t.data_ptr() for t in (*self.module.parameters(), *self.module.buffers())),
            torch.cuda.current_stream(device).cuda_stream,
            torch.get_float32_matmul_precision(),
            torch.is_autocast_enabled(device.type),
            self.module.training,
        )


def _can_replay(tensors: tuple[Tensor, ...]) -> bool:
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return False
    return (
        all(tensor.is_cuda for tensor in tensors)
        and not torch.cuda.is_current_stream_capturing()
        and not torch._C._are_functorch_transforms_active()
    )


def _capture(function: Function, tensors: tuple[Tensor, ...]) -> _Graph:
    device = tensors[0].device
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
    return _Graph(graph, inputs, outputs)
