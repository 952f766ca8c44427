"""The rows of benchmarks/README.md by section, and the commands that measure them."""

from __future__ import annotations

from page_values import (
    Row,
    case,
    grid_how,
    killed_how,
    learner,
    measured,
    packed,
    packed_how,
    ranks_how,
    scale,
    seeds,
    stack,
    stack_how,
    startup,
    startup_before,
)

FIRST = "first step of causal-vae, graph learned"
CPU = "CPU seconds (user and system), median of fresh processes"
DISCOVERY = "CPU seconds, one thread"
SECTIONS: dict[str, list[Row]] = {
    "Start-up": [
        Row("`import intervae`, s", "startup", startup("import intervae"), 1.5, "limit", CPU),
        Row("`intervae --help`, s", "startup", startup("intervae --help"), 0.7, "limit", CPU),
        Row(
            "`intervae models`, s",
            "startup",
            startup("intervae models"),
            startup("import torch"),
            "`import torch`",
            CPU,
        ),
        Row(
            "command to first step, graph learned, s",
            "startup",
            startup(FIRST),
            startup_before(FIRST),
            "before issue 26",
            CPU,
        ),
        Row(
            "command to first step, graph known, s",
            "startup",
            startup("first step of causal-vae, graph known"),
            startup_before("first step of causal-vae, graph known"),
            "before issue 26",
            CPU,
        ),
        Row(
            "first step on an H200, s",
            "gpu_goals",
            lambda document: document["startup"]["total"],
            2.5,
            "goal",
            "wall time of a fresh process, capture included",
        ),
    ],
    "Counterfactuals": [
        *(
            Row(
                f"deep-scm, picture={picture}, do() of a class, {where}, pictures/s",
                run,
                lambda document, picture=picture: document["pictures_per_second"][picture][
                    "do(class)"
                ],
                goal,
                "goal",
                "batches of 128, 32x32, median of whole calls",
                more_is_better=True,
            )
            for run, where, goal in (
                ("counterfactuals", "two CPU threads", 100),
                ("counterfactuals_gpu", "H200", 5000),
            )
            for picture in ("hvae", "flow")
        ),
    ],
    "Training on a GPU": [
        Row(
            "Pendulum 96 px to MIC .95 and TIC .82, s",
            "gpu_goals",
            lambda document: document["reached"]["fit_seconds"],
            5.0,
            "goal (authors: 275)",
            "wall time of `fit` in a fresh process, slowest seed",
        ),
        Row(
            "step that fills the GPU, fraction of the roofline",
            "roofline",
            lambda document: document["step"]["fraction"],
            0.4,
            "goal",
            "batch 4,096, 128 px, bf16; counted as roofline.py says",
            more_is_better=True,
        ),
    ],
    "Many runs, several processes, packed data": [
        *(
            Row(
                f"stack, {what}, s",
                "stacks",
                stack(part),
                stack(part, "one after the other"),
                "one seed after the other",
                stack_how,
            )
            for what, part in (
                ("CausalVAE, convolutions", "CausalVAE, convolutions"),
                ("CausalVAE, dense", "CausalVAE, dense"),
                ("small beta-VAE", "beta-VAE"),
            )
        ),
        Row(
            "torchrun, 2 ranks: relative difference of losses to one process",
            "ranks",
            measured("difference"),
            1e-6,
            "limit",
            ranks_how,
        ),
        Row(
            "torchrun, a rank killed: epochs trained",
            "ranks",
            measured("epochs_once_each"),
            measured("epochs"),
            "epochs asked for",
            killed_how,
            more_is_better=True,
        ),
        Row(
            "grid, workers killed: numbers equal to one process",
            "grid",
            measured("equal_numbers"),
            measured("numbers"),
            "all numbers",
            grid_how,
            more_is_better=True,
        ),
        Row(
            "packed data, resident memory in training, GB",
            "packed",
            packed("training", "resident_gb"),
            2.0,
            "limit",
            packed_how("largest of 50 samples a second"),
        ),
        Row(
            "packed data, training, rows per CPU second",
            "packed",
            packed("training", "rows_per_cpu_second"),
            packed("training", "rows_per_cpu_second", "memory"),
            "in memory; goal: ratio .9",
            packed_how("VAE, batch 64, all threads, fastest of 3"),
            more_is_better=True,
        ),
        Row(
            "packed data, batches without a model, rows per CPU second",
            "packed",
            packed("batches", "rows_per_cpu_second"),
            packed("batches", "rows_per_cpu_second", "memory"),
            "in memory",
            packed_how("a shuffled epoch as floats, fastest of 3"),
            more_is_better=True,
        ),
    ],
    "Graph from labels": [
        *(
            Row(
                f"`independence`, {n} variables, s",
                "discovery_scale",
                scale(n, "cpu_seconds"),
                goal,
                name,
                seeds(n, DISCOVERY),
            )
            for n, goal, name in (
                (10, 60, "goal (of 20 variables)"),
                (20, 60, "goal"),
                (50, 600, "goal (of 100 variables)"),
                (100, 600, "goal"),
            )
        ),
        *(
            Row(
                f"`independence`, {n} variables, SHD",
                "discovery_scale",
                scale(n, "shd"),
                scale(n, "shd", "empty graph"),
                "empty graph",
                seeds(n, "a reversed edge counts once"),
            )
            for n in (10, 20, 50, 100)
        ),
        Row(
            "`dagma`, 50 variables, linear, s",
            "discovery",
            learner("linear_gauss_ER2_d50_n1000_s0", "dagma", "cpu_seconds"),
            learner("linear_gauss_ER2_d50_n1000_s0", "peer: dagma", "cpu_seconds"),
            "dagma",
            "CPU seconds, one thread, same table",
        ),
        Row(
            "`dagma`, the same, SHD",
            "discovery",
            learner("linear_gauss_ER2_d50_n1000_s0", "dagma", "shd"),
            learner("linear_gauss_ER2_d50_n1000_s0", "peer: dagma", "shd"),
            "dagma",
            "same table",
        ),
        Row(
            "`notears-mlp`, 20 variables, s",
            "discovery",
            learner("nonlinear_mlp_ER2_d20_n1000_s0", "notears-mlp", "cpu_seconds"),
            learner("nonlinear_mlp_ER2_d20_n1000_s0", "peer: gcastle notears-mlp", "cpu_seconds"),
            "gcastle",
            "CPU seconds, one thread, same table",
        ),
        Row(
            "`notears-mlp`, the same, SHD",
            "discovery",
            learner("nonlinear_mlp_ER2_d20_n1000_s0", "notears-mlp", "shd"),
            learner("nonlinear_mlp_ER2_d20_n1000_s0", "peer: gcastle notears-mlp", "shd"),
            "gcastle",
            "same table",
        ),
    ],
    "Parts of models": [
        Row(
            "codebooks, PSNR, dB",
            "quantise",
            case("psnr", codebook="ours"),
            case("psnr", codebook="the library"),
            "vector-quantize-pytorch",
            "same VQ-VAE, 400 steps, one seed",
            more_is_better=True,
        ),
        Row(
            "codebooks, a step, s",
            "quantise",
            case("cpu_seconds", codebook="ours"),
            case("cpu_seconds", codebook="the library"),
            "vector-quantize-pytorch",
            "CPU seconds, one thread",
        ),
        Row(
            "transition layer, causal mode, a step, s",
            "transition",
            case("cpu_seconds", mode="causal"),
            case("authors", mode="causal"),
            "authors' code (scaled to batch 16)",
            "CPU seconds, one thread, batch 16",
        ),
    ],
    "The page of `intervae serve`": [
        Row(
            "first page with all its files, s",
            "page",
            lambda document: document["measured"]["first_page_seconds"],
            3.0,
            "limit",
            "wall time after the command, median of 5 starts",
        ),
        Row(
            "do() to picture in the server, ms",
            "page",
            lambda document: document["measured"]["do_server_ms"],
            50.0,
            "limit",
            "wall time, median of 200",
        ),
        Row(
            "slider to new pixels, ms",
            "page",
            lambda document: document["measured"]["do_pixels_ms"],
            100.0,
            "limit",
            "wall time in Chromium, median of 200",
        ),
    ],
}
COMMANDS = {
    "counterfactuals": "python benchmarks/counterfactuals.py "
    "--out benchmarks/results/counterfactuals",
    "counterfactuals_gpu": "python benchmarks/counterfactuals.py --device cuda "
    "--out benchmarks/results/counterfactuals_gpu",
    "startup": "python benchmarks/startup.py --out benchmarks/results/startup",
    "gpu_goals": "python benchmarks/gpu_goals.py --out benchmarks/results/gpu_goals",
    "roofline": "python benchmarks/roofline.py --device cuda --out benchmarks/results/roofline",
    "stacks": "python benchmarks/stacks.py --seeds 4 --epochs 2 --out benchmarks/results/stacks",
    "ranks": "python benchmarks/ranks.py --out benchmarks/results/ranks",
    "grid": "python benchmarks/grid.py --out benchmarks/results/grid",
    "packed": "python benchmarks/packed.py --pictures 50000,200000 --steps 15 "
    "--out benchmarks/results/packed",
    "discovery_scale": "python benchmarks/discovery_scale.py --seeds 3 --merge "
    "--out benchmarks/results/discovery_scale",
    "discovery": "python benchmarks/discovery.py --out benchmarks/results/discovery",
    "quantise": "python benchmarks/quantise.py --out benchmarks/results/quantise",
    "transition": "python benchmarks/transition.py --out benchmarks/results/transition",
    "page": "python benchmarks/page.py --run runs/demo --out benchmarks/results/page",
}
