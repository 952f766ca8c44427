"""One fresh process up to the first step of CausalVAE on Pendulum; prints seconds of its stages.

python benchmarks/first_step.py                         # CPU seconds
python benchmarks/first_step.py --device cuda --wall    # on a GPU, with the capture of the step
"""

import time

WALL_START = time.perf_counter()  # the interpreter has started by then: some 0.02 s

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
from typing import Any  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--graph", choices=("auto", "true"), default="auto")
    parser.add_argument("--wall", action="store_true", help="wall time instead of CPU time")
    options = parser.parse_args()
    stages: dict[str, float] = {}

    def seconds() -> float:
        return time.perf_counter() - WALL_START if options.wall else time.process_time()

    def mark(stage: str) -> None:
        stages[stage] = seconds() - sum(stages.values())

    import intervae
    from intervae.models.causal_vae import graph_learning
    from intervae.training.stepper import Stepper

    _ = intervae.create, intervae.fit
    mark("imports")
    discover = graph_learning.discover

    def timed_discover(*arguments: Any, **settings: Any) -> Any:
        mark("model")
        result = discover(*arguments, **settings)
        mark("graph discovery")
        return result

    def first_step(stepper: Stepper, *_: Any) -> None:
        mark("optimiser, capture")
        if stepper.graph is not None:
            import torch

            stepper.graph.replay()
            torch.cuda.synchronize()
        else:
            stepper.try_step()
        mark("first step")
        print(json.dumps({**stages, "total": seconds()}), flush=True)
        os._exit(0)

    graph_learning.discover = timed_discover
    Stepper.run_epoch = first_step  # type: ignore[assignment,method-assign]
    data = intervae.load_data("pendulum", size=options.size)
    mark("data")
    known = {"graph": data.graph} if options.graph == "true" else {}
    # so short a training that its steps are not timed before it begins
    model = intervae.create("causal-vae", data, seed=0, epochs=2, **known)
    model.fit(data, seed=0, device=options.device, threads=1)


if __name__ == "__main__":
    main()
