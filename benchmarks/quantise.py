"""Codebooks by our own few lines beside those of vector-quantize-pytorch, and without restarts: pictures kept, codes used, CPU-seconds of a step.

    python benchmarks/quantise.py                                      # in one run, one CPU thread, a few minutes
    python benchmarks/quantise.py --out benchmarks/results/quantise    # also write quantise.json and the page quantise.md there
    pip install vector-quantize-pytorch                                # for the last two rows; without it they are left out

The same VQ-VAE (encoder, decoder, seed, batches) on `shapes3d-like` of 32 x 32 pixels in patches of 4: PSNR of validation pictures, and the
perplexity of the codes over them.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from conditions import conditions, told, write
from torch import Tensor, nn

import intervae
from intervae.data.base import Dataset
from intervae.metrics import psnr
from intervae.models.mcq_vae import MCQVAE
from intervae.nets.quantise import Quantised, usage

LIBRARY = "vector-quantize-pytorch"
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


def trained(data: Dataset, steps: int, quantiser: nn.Module | None, **settings: float) -> dict[str, float]:
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
    perplexity = float(usage(torch.bincount(found.indices.flatten(), minlength=CODES))[1])
    return {"psnr": float(psnr(shown, images).mean()), "perplexity": perplexity, "cpu_seconds": seconds}


def page(document: dict[str, Any]) -> str:
    """The markdown of a measured document; every number in it comes from there."""
    lines = [f"# Our codebooks beside those of {LIBRARY}", ""]
    lines += [f"The same VQ-VAE, {CODES} codes of {FEATURES} dims, {document['steps']} steps of {BATCH} pictures of `shapes3d-like`"]
    lines += ["(32 x 32 pixels in patches of 4), one seed, one CPU thread: PSNR of validation pictures, the perplexity of the codes over them,"]
    lines += ["and the CPU-seconds of a step.", ""]
    lines += ["| codebook | PSNR, dB | perplexity | CPU-seconds |", "|---|---|---|---|"]
    for case in document["cases"]:
        lines.append(f"| {case['codebook']} | {case['psnr']:.2f} | {case['perplexity']:.1f} | {case['cpu_seconds']:.3f} |")
    if document["left_out"]:
        lines += ["", f"{document['left_out']}."]
    return "\n".join([*lines, "", *told(document)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=400, help="of every training")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    chosen = parser.parse_args()
    document = conditions(" ".join(["python", "benchmarks/quantise.py", *sys.argv[1:]]), [LIBRARY]) | {"steps": chosen.steps, "cases": []}
    torch.set_num_threads(1)
    data = intervae.load_data("shapes3d-like", **DATA)
    cases: list[tuple[str, nn.Module | None, dict[str, float]]] = [("ours", None, {}), ("ours, no restarts", None, {"restart": 0.0})]
    there = find_spec("vector_quantize_pytorch") is not None
    document["left_out"] = "" if there else f"{LIBRARY} is not installed, so its rows are left out"
    if there:
        torch.manual_seed(0)
        cases += [("the library", Theirs(2), {}), ("the library, no restarts", Theirs(0), {})]
    print(f"{CODES} codes of {FEATURES} dims, {chosen.steps} steps of {BATCH} pictures, one thread")
    print(f"{'':26}{'PSNR, dB':>10}{'perplexity':>12}{'CPU-seconds':>13}")
    for name, quantiser, settings in cases:
        found = trained(data, chosen.steps, quantiser, **settings)
        print(f"{name:26}{found['psnr']:10.2f}{found['perplexity']:12.1f}{found['cpu_seconds']:13.3f}", flush=True)
        document["cases"].append({"codebook": name, **found})
    if not there:
        print(document["left_out"])
    if chosen.out is not None:
        write(chosen.out, document, page(document))


if __name__ == "__main__":
    main()
