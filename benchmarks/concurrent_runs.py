"""Speed of training several seeds on one GPU: in sequence, in threads with streams, by vmap.

    python benchmarks/concurrent_runs.py [--seeds 5] [--steps 600]

Prints milliseconds per step and seed, and the speed-up over the sequence. Needs a GPU.
"""

from __future__ import annotations

import argparse
import copy
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from intervae.data import Dataset, build_dataset
from intervae.data.simulators import Pendulum
from intervae.models import create
from intervae.models.base import Model
from intervae.training.concurrent_runs import run_concurrently
from intervae.training.stepper import Stepper


def binary_digits(n: int = 20_000) -> Dataset:
    """Return random images of the size of MNIST."""
    rng = np.random.default_rng(0)
    return build_dataset(
        "noise", (rng.random((n, 1, 28, 28)) < 0.2).astype(np.uint8) * 255, np.zeros((n, 0)), []
    )


def separate(models: list[Model], data: Dataset, workers: int, epochs: int) -> float:
    """Return seconds for `epochs` epochs of every model, without the capture."""
    split = data.train.to("cuda")
    steppers: list[Stepper] = []
    for model in models:
        phase = next(phase for phase in model.to("cuda").train().phases() if phase.players)
        if phase.prepare is not None:
            phase.prepare(data, 0)
        steppers.append(
            Stepper(model, phase, split, phase.batch_size or 64, cuda_graph=True, bf16=False)
        )
        steppers[-1].run_epoch(0, epochs + 1, 0)

    def train(stepper: Stepper) -> Any:
        return lambda: [stepper.run_epoch(1 + epoch, epochs + 1, epoch) for epoch in range(epochs)]

    torch.cuda.synchronize()
    start = time.perf_counter()
    list(run_concurrently([train(stepper) for stepper in steppers], workers, "cuda"))
    torch.cuda.synchronize()
    return time.perf_counter() - start


def stacked(models: list[Model], data: Dataset, steps: int, batch_size: int) -> float:
    """Return seconds for `steps` steps of all models with stacked parameters and a vmapped loss.

    Adam acts on the stack, and the step is captured as a CUDA graph.
    """

    class Loss(torch.nn.Module):
        def __init__(self, model: Model) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            return self.model.loss(batch)["loss"]

    losses = [Loss(model.to("cuda").train()) for model in models]
    parameters, buffers = stack_module_state(losses)  # type: ignore[arg-type]
    skeleton = copy.deepcopy(losses[0])
    split = data.train.to("cuda")
    rows = torch.randint(len(split), (len(models), batch_size), device="cuda")
    optimiser = torch.optim.Adam(
        parameters.values(), lr=torch.tensor(1e-3, device="cuda"), fused=True, capturable=True
    )

    def loss_of(parameters: Any, buffers: Any, batch: Any) -> Tensor:
        return functional_call(skeleton, (parameters, buffers), (batch,))

    def step() -> None:
        flat = split.batch(rows.flatten())
        batch = {key: value.unflatten(0, rows.shape) for key, value in flat.items()}
        batch["step"] = torch.zeros(len(models), device="cuda")
        optimiser.zero_grad(set_to_none=True)
        vmap(loss_of, randomness="different")(parameters, buffers, batch).sum().backward()
        optimiser.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        graph.replay()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600, help="minimum steps per seed")
    options = parser.parse_args()
    pendulum, digits = Pendulum().dataset(size=96), binary_digits()
    cases: list[tuple[str, str, Dataset, dict[str, Any]]] = [
        ("CausalVAE, 96 x 96 x 3, batch 64", "causal-vae", pendulum, {"graph": pendulum.graph}),
        ("Ladder VAE, 5 layers, 28 x 28, batch 256", "ladder-vae", digits, {"binarise": True}),
        ("beta-VAE, 64-channel convolutions, 96 x 96 x 3, batch 64", "beta-vae", pendulum, {}),
    ]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.seeds} seeds")
    for title, name, data, settings in cases:

        def make(
            seed: int, name: str = name, data: Dataset = data, settings: dict[str, Any] = settings
        ) -> Model:
            return create(name, data, seed=seed, **settings)

        batch_size = make(0).settings.batch_size
        per_epoch = len(data.train) // batch_size
        epochs = -(-options.steps // per_epoch)
        total = epochs * per_epoch * options.seeds
        print(title)
        sequential = separate([make(s) for s in range(options.seeds)], data, 1, epochs) / total
        print(f"  in sequence                 {1e3 * sequential:7.3f} ms per step and seed")
        for workers in sorted({2, options.seeds}):
            seconds = (
                separate([make(s) for s in range(options.seeds)], data, workers, epochs) / total
            )
            speed_up = f"{1e3 * seconds:7.3f} ms   x {sequential / seconds:.2f}"
            print(f"  {workers} in threads with streams   {speed_up}")
        try:
            seconds = stacked(
                [make(s) for s in range(options.seeds)], data, options.steps, batch_size
            ) / (options.steps * options.seeds)
            speed_up = f"{1e3 * seconds:7.3f} ms   x {sequential / seconds:.2f}"
            print(f"  {options.seeds} stacked by vmap         {speed_up}")
        except RuntimeError as error:
            print(f"  stacked by vmap: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
