"""Time to render the published grids: `python benchmarks/render.py [--size 96]`."""

from __future__ import annotations

import argparse
import time

from intervae.data.simulators import Flow, Pendulum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    for simulator in (Pendulum(), Flow()):
        noises, _ = simulator.published_grid()
        values = simulator.simulate(noises)
        seconds = []
        for _ in range(arguments.repeats):
            start = time.perf_counter()
            simulator.render(values, noises, size=arguments.size)
            seconds.append(time.perf_counter() - start)
        print(
            f"{simulator.name}: {len(values):,} images at {arguments.size}x{arguments.size}: "
            f"first call {seconds[0]:.2f} s, best {min(seconds):.2f} s"
        )


if __name__ == "__main__":
    main()
