"""Training of models: `fit` runs the phases of a model in one loop.

loop.py: `fit`. epochs.py: the epochs of a phase. stepper.py: its steps.
run_folder.py: new and resumed run folders.
optimisers.py: optimisers and learning rates. validation.py: checks and validation losses.
checkpoint.py: saved state. logging.py: metrics.jsonl, TensorBoard, progress.
timing.py: number of threads and estimate of the time. arguments.py: checks of arguments.
concurrent_runs.py: several runs on one GPU. ranks.py, rank_checks.py: one run on several GPUs
(torchrun).
seeds.py: `fit_seeds`. stacked_runs.py: its phases. stacked_stepper.py, stack.py, draws.py: runs
with a leading axis, one vmapped loss, and its noise.
"""

from intervae.models.device import choose_device
from intervae.training.loop import Result, fit
from intervae.training.options import Options
from intervae.training.seeds import SeedRun, fit_seeds

__all__ = ["Options", "Result", "SeedRun", "choose_device", "fit", "fit_seeds"]
