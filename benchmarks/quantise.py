"""Our codebooks compared with vector-quantize-pytorch: PSNR, perplexity, CPU-seconds per step.

    python benchmarks/quantise.py                                      # a few minutes on one thread
    python benchmarks/quantise.py --out benchmarks/results/quantise    # also quantise.json and .md
    pip install vector-quantize-pytorch                                # for the library's rows

The same VQ-VAE (encoder, decoder, seed, batches) on `shapes3d-like`, 32 x 32 pixels in patches of
4, with and without restarts: PSNR of validation images, and the perplexity of their codes.
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
from conditions import conditions, footer, write_results
from torch import Tensor, nn

import intervae
from intervae.data import Dataset
from intervae.metrics import psnr
from intervae.models.ct_vae.mcq_vae import MCQVAE
from intervae.nets.quantise import Quantised, usage

LIBRARY = "vector-quantize-pytorch"
CODES, FEATURES, BATCH = 256, 64, 64
DATA = {"size": 32, "levels": (4, 4, 4, 3, 4, 5)}


class LibraryQuantiser(nn.Module):
    """The library's codebook with the interface of `Quantiser`."""

    def __init__(self, dead: int) -> None:
        super().__init__()
        vector_quantize = import_module("vector_quantize_pytorch").VectorQuantize
        self.inner = vector_quantize(
            FEATURES,
            CODES,
            decay=0.99,
            threshold_ema_dead_code=dead,
            accept_image_fmap=True,
            commitment_weight=0.0,
        )

    def forward(self, features: Tensor, generator: torch.Generator | None = None) -> Quantised:
        through, indices, _ = self.inner(features)
        error = (features - through.detach()).square().sum((1, 2, 3))
        return Quantised(through, indices.flatten(1), error)

    def update(self) -> None:
        """Do nothing; the library moves its codes in forward()."""


def train_and_measure(
    data: Dataset, steps: int, quantiser: nn.Module | None, **settings: float
) -> dict[str, float]:
    """Return PSNR and perplexity after `steps` steps, and the CPU-seconds per step."""
    torch.manual_seed(0)
    model = intervae.create(
        "vq-vae", data, codes=CODES, features=FEATURES, patch=4, filters=128, **settings
    )
    assert isinstance(model, MCQVAE)
    if quantiser is not None:
        model.quantiser = quantiser  # type: ignore[assignment]
    optimiser = torch.optim.Adam(
        [*model.encoder.parameters(), *model.decoder.parameters()], lr=3e-3
    )
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
        quantised = model.quantise(images)
        reconstructed = torch.sigmoid(model.decoder(quantised.features))
    perplexity = float(usage(torch.bincount(quantised.indices.flatten(), minlength=CODES))[1])
    return {
        "psnr": float(psnr(reconstructed, images).mean()),
        "perplexity": perplexity,
        "cpu_seconds": seconds,
    }


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a measured document."""
    lines = [f"# Our codebooks beside those of {LIBRARY}", ""]
    lines += [
        f"The same VQ-VAE, {CODES} codes of {FEATURES} dims, {document['steps']} steps of {BATCH} "
        "images of `shapes3d-like`",
        "(32 x 32 pixels in patches of 4), one seed, one CPU thread: PSNR of validation images, "
        "perplexity",
        "of their codes, and CPU-seconds per step.",
        "",
    ]
    lines += ["| codebook | PSNR, dB | perplexity | CPU-seconds |", "|---|---|---|---|"]
    for case in document["cases"]:
        numbers = f"{case['psnr']:.2f} | {case['perplexity']:.1f} | {case['cpu_seconds']:.3f}"
        lines.append(f"| {case['codebook']} | {numbers} |")
    if document["left_out"]:
        lines += ["", f"{document['left_out']}."]
    return "\n".join([*lines, "", *footer(document)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=400, help="steps of each training")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    arguments = parser.parse_args()
    document = conditions(
        " ".join(["python", "benchmarks/quantise.py", *sys.argv[1:]]), [LIBRARY]
    ) | {"steps": arguments.steps, "cases": []}
    torch.set_num_threads(1)
    data = intervae.load_data("shapes3d-like", **DATA)
    cases: list[tuple[str, nn.Module | None, dict[str, float]]] = [
        ("ours", None, {}),
        ("ours, no restarts", None, {"restart": 0.0}),
    ]
    installed = find_spec("vector_quantize_pytorch") is not None
    document["left_out"] = "" if installed else f"{LIBRARY} is not installed; its rows are left out"
    if installed:
        torch.manual_seed(0)
        cases += [
            ("the library", LibraryQuantiser(2), {}),
            ("the library, no restarts", LibraryQuantiser(0), {}),
        ]
    print(
        f"{CODES} codes of {FEATURES} dims, {arguments.steps} steps of {BATCH} images, one thread"
    )
    print(f"{'':26}{'PSNR, dB':>10}{'perplexity':>12}{'CPU-seconds':>13}")
    for name, quantiser, settings in cases:
        measured = train_and_measure(data, arguments.steps, quantiser, **settings)
        numbers = f"{measured['psnr']:10.2f}{measured['perplexity']:12.1f}"
        print(f"{name:26}{numbers}{measured['cpu_seconds']:13.3f}", flush=True)
        document["cases"].append({"codebook": name, **measured})
    if not installed:
        print(document["left_out"])
    if arguments.out is not None:
        write_results(arguments.out, document, page(document))


if __name__ == "__main__":
    main()
