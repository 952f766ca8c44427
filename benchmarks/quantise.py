"""Codebooks by our own few lines beside those of vector-quantize-pytorch, and without restarts: pictures kept, codes used, CPU-seconds of a step.

    python benchmarks/quantise.py                 # in one run, one CPU thread, a few minutes
    pip install vector-quantize-pytorch           # for the last two rows; without it they are left out

The same VQ-VAE (encoder, decoder, seed, batches) on `shapes3d-like` of 32 x 32 pixels in patches of 4: PSNR of validation pictures, and the
perplexity of the codes over them.
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn

import intervae
from intervae.data.base import Dataset
from intervae.metrics import psnr
from intervae.models.mcq_vae import MCQVAE
from intervae.nets.quantise import Quantised, usage

CODES, FEATURES, BATCH = 256, 64, 64
DATA = {"size": 32, "levels": (4, 4, 4, 3, 4, 5)}


class Theirs(nn.Module):
    """The library's codebook behind the calls that a VQ-VAE makes of ours."""

    def __init__(self, dead: int) -> None:
        super().__init__()
        made = import_module("vector_quantize_pytorch").VectorQuantize
        self.inner = made(FEATURES, CODES, decay=0.99, threshold_ema_dead_code=dead, accept_image_fmap=True, commitment_weight=0.0)

    def forward(self, features: Tensor, generator: torch.Generator | None = None) -> Quantised:
        through, indices, _ = self.inner(features)
        error = (features - through.detach()).square().sum((1, 2, 3))
        return Quantised(through, indices.flatten(1), error)

    def update(self) -> None:
        """It has moved its codes on the way forward."""


def trained(data: Dataset, steps: int, quantiser: nn.Module | None, **settings: float) -> tuple[float, float, float]:
    """PSNR, perplexity and CPU-seconds of a step after `steps` of them."""
    torch.manual_seed(0)
    model = intervae.create("vq-vae", data, codes=CODES, features=FEATURES, patch=4, filters=128, **settings)
    assert isinstance(model, MCQVAE)
    if quantiser is not None:
        model.quantiser = quantiser  # type: ignore[assignment]
    optimiser = torch.optim.Adam([*model.encoder.parameters(), *model.decoder.parameters()], lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, steps, pct_start=0.05)
    generator, model = torch.Generator().manual_seed(0), model.train()
    begin = time.process_time()
    for _ in range(steps):
        rows = torch.randint(len(data.train), (BATCH,), generator=generator)
        optimiser.zero_grad()
        model.loss(data.train.batch(rows), generator)["loss"].backward()
        optimiser.step()
        schedule.step()
        model.quantiser.update()
    seconds = (time.process_time() - begin) / steps
    model.eval()
    images = data.validation.batch(torch.arange(min(512, len(data.validation))))["images"]
    with torch.no_grad():
        found = model.quantise(images)
        shown = torch.sigmoid(model.decoder(found.features))
    return float(psnr(shown, images).mean()), float(usage(torch.bincount(found.indices.flatten(), minlength=CODES))[1]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=400, help="of every training")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    data = intervae.load_data("shapes3d-like", **DATA)
    cases: list[tuple[str, nn.Module | None, dict[str, float]]] = [("ours", None, {}), ("ours, no restarts", None, {"restart": 0.0})]
    if find_spec("vector_quantize_pytorch") is not None:
        torch.manual_seed(0)
        cases += [("the library", Theirs(2), {}), ("the library, no restarts", Theirs(0), {})]
    print(f"{CODES} codes of {FEATURES} dims, {steps} steps of {BATCH} pictures, one thread")
    print(f"{'':26}{'PSNR, dB':>10}{'perplexity':>12}{'CPU-seconds':>13}")
    for name, quantiser, settings in cases:
        found = trained(data, steps, quantiser, **settings)
        print(f"{name:26}{found[0]:10.2f}{found[1]:12.1f}{found[2]:13.3f}", flush=True)


if __name__ == "__main__":
    main()
