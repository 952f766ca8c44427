"""Time from a fresh process to the paper's quality on Pendulum, and start-up, on a GPU.

python benchmarks/gpu_goals.py --out benchmarks/results/gpu_goals
python benchmarks/gpu_goals.py --device cpu --size 16 --epochs 1 --seeds 1   # tiny

Each row is a new Python process: CausalVAE on Pendulum, all defaults, a number of epochs. Seconds
are wall time of the whole call of `fit`, graph discovery, compilation and capture included, and of
the process up to the end of `fit`. MIC and TIC are measured afterwards, on the test split. A goal
is met by the fewest epochs at which every seed reaches both. Start-up is `first_step.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
QUALITY = {"mic": 0.95, "tic": 0.82}
FIT_GOAL, STARTUP_GOAL = 5.0, 2.5  # seconds


def train(device: str, size: int, epochs: int, seed: int) -> dict[str, Any]:
    """Train in this process; return its seconds and its measurements."""
    import intervae

    data = intervae.load_data("pendulum", size=size)
    model = intervae.create("causal-vae", data, seed=seed, epochs=epochs)
    begun = time.perf_counter()
    model.fit(data, seed=seed, device=device)
    ended = time.perf_counter()
    measured = {m.metric: m.value for m in intervae.evaluate(model, data, list(QUALITY))}
    return {
        "epochs": epochs,
        "seed": seed,
        "fit_seconds": ended - begun,
        "process_seconds": ended - STARTED,
        **{name: measured[name] for name in QUALITY},
    }


def fresh(words: list[str]) -> dict[str, Any]:
    """Return what a new process prints as JSON in its last line."""
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def fewest_epochs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fewest epochs at which every seed has the quality, and the seconds of `fit`."""
    for epochs in sorted({row["epochs"] for row in rows}):
        same = [row for row in rows if row["epochs"] == epochs]
        if all(row[name] >= least for row in same for name, least in QUALITY.items()):
            seconds = max(row["fit_seconds"] for row in same)
            return {"epochs": epochs, "fit_seconds": seconds, "goal": FIT_GOAL}
    return {"epochs": None, "fit_seconds": None, "goal": FIT_GOAL}


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    from conditions import footer

    reached, startup = document["reached"], document["startup"]
    lines = ["# Time to the paper's quality", "", *(__doc__ or "").split("\n\n", 2)[2].splitlines()]
    lines += [
        "",
        "| epochs | seed | fit, s | process, s | MIC | TIC |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['epochs']} | {row['seed']} | {row['fit_seconds']:.2f} | "
        f"{row['process_seconds']:.2f} | {row['mic']:.3f} | {row['tic']:.3f} |"
        for row in document["rows"]
    ]
    result = "not reached by any of these numbers of epochs"
    if reached["epochs"] is not None:
        result = f"{reached['fit_seconds']:.2f} s ({reached['epochs']} epochs, slowest seed)"
    lines += ["", f"MIC >= {QUALITY['mic']} and TIC >= {QUALITY['tic']}: {result}."]
    lines += ["", "Start-up, wall seconds of the stages up to the end of the first step:", ""]
    lines += [f"- {stage}: {seconds:.2f}" for stage, seconds in startup.items()]
    return "\n".join([*lines, "", *footer(document)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--epochs", default="2,4,8,16", help="numbers of epochs, in turn")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    parser.add_argument("--child", type=int, metavar="SEED", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(train(options.device, options.size, int(options.epochs), options.child)))
        return
    from conditions import conditions, write_results

    place = ["--device", options.device, "--size", str(options.size)]
    rows = []
    for epochs in options.epochs.split(","):
        for seed in range(options.seeds):
            rows.append(fresh([__file__, *place, "--epochs", epochs, "--child", str(seed)]))
            print(rows[-1], flush=True)
    startup = fresh([str(Path(__file__).parent / "first_step.py"), *place, "--wall"])
    print(startup)
    document = conditions(" ".join(["python", "benchmarks/gpu_goals.py", *sys.argv[1:]])) | {
        "device": options.device,
        "rows": rows,
        "reached": fewest_epochs(rows),
        "startup": startup,
        "startup_goal": STARTUP_GOAL,
    }
    if options.device == "cuda":
        import torch

        document["machine"] += f", {torch.cuda.get_device_name()}"
    if options.out is not None:
        write_results(options.out, document, page(document))


if __name__ == "__main__":
    main()
