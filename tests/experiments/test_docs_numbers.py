"""Numbers in README, docs and research notes are those of committed results."""

from __future__ import annotations

import re
from typing import Any

from helpers.docs_numbers import (
    NUMBER,
    assert_rounded,
    numbers_in,
    rows_of,
    table_after,
    text_of,
)

from intervae.experiments import EXPERIMENTS, MetricKey, find_experiment


# ---- beta-VAE metric -----------------------------------------------------------------------------
def test_docs_of_metrics_have_the_scores_of_ica_by_its_scale() -> None:
    small, standardised = numbers_in(
        "docs/metrics.md", r"has (0\.\d+) instead of (0\.\d+) on dSprites"
    )
    rows = rows_of("betavae-protocol")
    for text, part in (
        (small, "Adagrad, own scale, not standardised"),
        (standardised, "ours"),
    ):
        assert_rounded(text, rows["dsprites", "ica", part, "beta_vae_score"]["mean"])


# ---- Ladder VAE ----------------------------------------------------------------------------------
def test_docs_of_the_ladder_have_the_bounds_of_both_tables() -> None:
    page, tables = "docs/ladder-vae.md", {n: rows_of(f"lvae-{n}") for n in ("mnist", "omniglot")}

    def mean(data: str, variant: str, metric: str = "log_likelihood") -> float:
        return tables[data][data, "ladder-vae", variant, metric]["mean"]

    lines = table_after(page, "mean of three seeds")
    assert [line[0] for line in lines] == ["VAE", "VAE+BN", "VAE+BN+WU", "LVAE+BN+WU"]
    places = [(data, depth) for data in tables for depth in (1, 5)]
    for name, *cells in lines:
        for cell, (data, depth) in zip(cells, places, strict=True):
            assert (cell == "") == (name.startswith("LVAE") and depth == 1)
            if cell:
                assert_rounded(cell, mean(data, f"{name} {depth}"))
    (best, paper) = numbers_in(page, r"reach (-[\d.]+) nats .*? paper: (-[\d.]+) ")
    long = tables["mnist"]["mnist", "ladder-vae", "LVAE+BN+WU 5 long", "log_likelihood"]
    assert_rounded(best, long["mean"])
    assert_rounded(paper, long["paper"])
    units = numbers_in(
        page, r"layers (\d+) against (\d+) on MNIST, (\d+) against (\d+) on Omniglot"
    )
    order = [(data, name) for data in tables for name in ("LVAE+BN+WU 5", "VAE+BN+WU 5")]
    for text, (data, variant) in zip(units, order, strict=True):
        assert_rounded(text, mean(data, variant, "active_units"))


def test_docs_of_the_ladder_have_the_bounds_of_quick_fine_tuning() -> None:
    texts = numbers_in(
        "docs/ladder-vae.md",
        r"one seed: (-[\d.]+) nats before, (-[\d.]+) after .*? (-[\d.]+) with 10 Monte Carlo .*? "
        r"(-[\d.]+) with 10 importance",
    )
    rows = rows_of("lvae-mnist-quick")
    variants = ("", " fine-tuned MC=1", " fine-tuned", " fine-tuned IW=10")
    for text, variant in zip(texts, variants, strict=True):
        key = "mnist", "ladder-vae", f"LVAE+BN+WU 2{variant}", "log_likelihood"
        assert_rounded(text, rows[key]["mean"])


def test_additions_help_one_layer_on_omniglot_and_not_on_mnist() -> None:
    page = "docs/ladder-vae.md"
    bounds = {
        data: [
            rows_of(f"lvae-{data}")[data, "ladder-vae", f"{name} 1", "log_likelihood"]["mean"]
            for name in ("VAE", "VAE+BN", "VAE+BN+WU")
        ]
        for data in ("mnist", "omniglot")
    }
    assert bounds["mnist"] == sorted(bounds["mnist"], reverse=True)
    assert bounds["omniglot"] == sorted(bounds["omniglot"])
    first, second = numbers_in(page, r"on Omniglot both do, by ([\d.]+) and ([\d.]+) nats")
    assert_rounded(first, bounds["omniglot"][1] - bounds["omniglot"][0])
    assert_rounded(second, bounds["omniglot"][2] - bounds["omniglot"][1])
    ladder = [
        rows_of(f"lvae-{data}")[data, "ladder-vae", "LVAE+BN+WU 5", "log_likelihood"]["mean"]
        - rows_of(f"lvae-{data}")[data, "ladder-vae", "VAE+BN+WU 5", "log_likelihood"]["mean"]
        for data in ("mnist", "omniglot")
    ]
    (most,) = numbers_in(page, r"The ladder adds less than ([\d.]+) nats")
    assert all(0 < gain < float(most) for gain in ladder)


# ---- README --------------------------------------------------------------------------------------
def test_readme_has_no_measured_number_but_the_time_of_the_demo() -> None:
    """Decimals and units outside of code; the demo's training must fit into its minutes."""
    text = re.sub(r"```python.*?```", "", text_of("README.md"), flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)|Python 3\.\d+|, 3\.\d+|Apache-2\.0", "", text)
    assert not re.findall(r"\d+\.\d+|\d+ ?(?:%|dB|nats|seconds|points)", text)
    (minutes,) = numbers_in("README.md", r"draw: (\d+) minutes on 2 idle cores")
    (row,) = (row for key, row in rows_of("causalvae-demo").items() if key[3] == "train_seconds")
    assert row["mean"] < 60 * float(minutes)


# ---- CausalVAE -----------------------------------------------------------------------------------
def test_docs_of_layers_have_the_errors_of_pendulum() -> None:
    rows = rows_of("causalvae-pendulum")
    lines = table_after("docs/causal-vae.md", "means of the pixel")
    names = ("pendulum", "light", "shadow_length", "shadow_position")
    metrics = ("counterfactual_pixel_mae", "identity_pixel_mae")
    places = [("layers ", metrics[0]), ("layers ", metrics[1]), ("", metrics[0])]
    for (_, *cells), (decoder, metric) in zip(lines, places, strict=True):
        for text, name in zip(cells, names, strict=True):
            row = rows["pendulum", "causal-vae", f"{decoder}{name}", metric]
            assert len(row["per_seed"]) == 5
            assert_rounded(text, row["mean"])


def test_docs_of_layers_have_the_worst_variable_and_seed_of_each_world() -> None:
    columns = (
        ("layers ", "counterfactual_pixel_mae"),
        ("layers ", "counterfactual_pixel_mae_decoder_alone"),
        ("", "counterfactual_pixel_mae"),
    )
    for world, *cells in table_after("docs/causal-vae.md", "for the worst variable"):
        rows = rows_of(f"causalvae-{world.lower()}")
        nothing = {
            key[2]: row["mean"]
            for key, row in rows.items()
            if key[3] == "identity_pixel_mae" and key[2] and not key[2].startswith("layers")
        }
        assert len(nothing) >= 4
        for text, (decoder, metric) in zip(cells, columns, strict=True):
            shares = [
                value / error
                for name, error in nothing.items()
                for value in rows[world.lower(), "causal-vae", decoder + name, metric][
                    "per_seed"
                ].values()
            ]
            assert len(shares) == 5 * len(nothing)
            assert_rounded(text, max(shares))


# ---- causal-prior VAE ----------------------------------------------------------------------------
def test_docs_of_the_causal_prior_have_its_r2() -> None:
    rows = rows_of("causal-prior-parabola")
    variants = ("causal prior", "isotropic after alignment", "isotropic, beta 1")
    lines = table_after("docs/causal-prior-vae.md", "means of ten seeds")
    for (_, *cells), variant in zip(lines, variants, strict=True):
        for cell, end in zip(cells, ("", "_from_all"), strict=True):
            for text, axis in zip(NUMBER.findall(cell), "xy", strict=True):
                row = rows["parabola", "causal-prior-vae", variant, f"r2_{axis}{end}"]
                assert len(row["per_seed"]) == 10
                assert_rounded(text, row["mean"])


# ---- CMCL ----------------------------------------------------------------------------------------
def cmcl(name: str, variant: str, metric: str) -> float:
    return rows_of(name)["cross-modal", "cmcl", variant, metric]["mean"]


def test_docs_of_annealing_have_the_mic_of_table_2() -> None:
    texts = numbers_in("docs/cmcl.md", r"linked latents is ([\d.]+) with it and ([\d.]+) with")
    for text, variant in zip(texts, ("20/40", "20/40 no annealing"), strict=True):
        assert_rounded(text, cmcl("cmcl-table2", variant, "mic_linked"))


def test_docs_of_heat_maps_have_the_energy_of_five_seeds() -> None:
    rows = rows_of("cmcl-xray")
    kinds = ("last block", "best block", "reference")
    lines = table_after("docs/cmcl-pictures.md", "means of five seeds")
    for (_, *cells), direction in zip(lines, ("causal", "anti-causal"), strict=True):
        keys = [(f"{direction} {kind}", "heat_map_energy") for kind in kinds]
        for cell, key in zip(cells, [*keys, (direction, "mask_share")], strict=True):
            row = rows["xray-like", "cmcl", *key]
            assert len(row["per_seed"]) == 5
            assert_rounded(cell, row["mean"])


def test_docs_of_directions_have_the_rule_of_the_committed_runs() -> None:
    """The column `n Gaussian` of the last table: SHD and correct directions."""
    lines = table_after("docs/cmcl-directions.md", "means of five\nsimulators")
    ablations = [f"20/40 {name}" for name in ("no contrast", "no causal module", "neither")]
    expected = [
        [("cmcl-fig2", "1/10")],
        [("cmcl-fig2", size) for size in ("10/20", "12/24", "20/40")],
        [("cmcl-table2", name) for name in ablations],
        [("cmcl-table1", "10/20 any signal")],
        [("cmcl-table1", f"{size} free GP") for size in ("8/16", "10/20")],
    ]
    for (_, cell, _), keys in zip(lines, expected, strict=True):
        values = [cmcl(*key, metric) for key in keys for metric in ("shd", "direction_right")]
        for text, value in zip(NUMBER.findall(cell), values, strict=True):
            assert_rounded(text, value)


# ---- research notes that the docs cite -----------------------------------------------------------
RESEARCH = "research/2026-11-18-cmcl-results.md"


def test_research_note_has_the_graphs_and_latents_of_every_size() -> None:
    (head,) = re.findall(r"^\| \| (1/10 .*) \|$", text_of(RESEARCH), re.MULTILINE)
    sizes = head.split(" | ")
    lines = {line[0]: line[1:] for line in table_after(RESEARCH, "five worlds of each size")}
    sources = {
        "MIC of linked latents, `cmcl`": "mic_linked",
        "SHD, `cmcl`": "shd",
        "linked pairs with the correct direction, `cmcl`": "direction_right",
    }
    fig2 = rows_of("cmcl-fig2")
    for label, metric in sources.items():
        for size, text in zip(sizes, lines[label], strict=True):
            name = "cmcl-fig2" if ("cross-modal", "cmcl", size, "shd") in fig2 else "cmcl-table1"
            assert_rounded(text, cmcl(name, size, metric))
    papers = {size: text for size, text in zip(sizes, lines["the paper's"], strict=True) if text}
    assert set(papers) == {"3/10", "5/10", "8/16", "10/20"}
    jobs = {
        job.variant: job
        for job in find_experiment("cmcl-table1", EXPERIMENTS).jobs
        if job.model == "cmcl"
    }
    for size, text in papers.items():  # beside the rows with the paper's transform
        job = jobs[f"{size} free GP"]
        assert_rounded(text, job.paper_entries(MetricKey("mic_linked"))["paper"])


def test_research_note_has_the_digits_table() -> None:
    rows = rows_of("cmcl-mnist")
    variants = ("angle", "offset", "offset bent")
    variants += tuple(f"{variant} with 10 latents" for variant in variants)
    for (_, _, rank, error, margin), variant in zip(
        table_after(RESEARCH, "Means, and the lowest seed."), variants, strict=True
    ):
        data = "mnist-rotation" if variant.startswith("angle") else "mnist-shift"

        def of(metric: str, key: tuple[str, str] = (data, variant)) -> dict[str, Any]:
            return rows[key[0], "cmcl", key[1], metric]

        score = of("do_spearman")
        mean, lowest = NUMBER.findall(rank)
        assert_rounded(mean, score["mean"])
        assert_rounded(lowest, min(score["per_seed"].values()))
        metrics = ("do_error", "unchanged_error")
        for text, metric in zip(NUMBER.findall(error), metrics, strict=False):
            assert_rounded(text, of(metric)["mean"])
        metrics = ("direction_margin", "direction_margin_shuffled")
        for text, metric in zip(NUMBER.findall(margin), metrics, strict=True):
            assert_rounded(text, of(metric)["mean"])


def test_research_note_has_the_accuracies_of_x_rays() -> None:
    rows = rows_of("cmcl-xray")
    jobs = (("xray-like", "causal"), ("xray-like", "anti-causal"), ("covid-cxr", "covid"))
    lines = table_after(RESEARCH, "64 x 64 pixels where the paper has 128.")
    for (_, accuracy, majority, balanced, auc, _), (data, variant) in zip(lines, jobs, strict=True):

        def of(metric: str, key: tuple[str, str] = (data, variant)) -> dict[str, Any]:
            return rows[key[0], "cmcl", key[1], metric]

        mean, lowest, all_latents = NUMBER.findall(accuracy)
        assert_rounded(mean, of("link_accuracy")["mean"])
        assert_rounded(lowest, min(of("link_accuracy")["per_seed"].values()))
        assert_rounded(all_latents, of("all_latents_accuracy")["mean"])
        assert_rounded(majority, of("majority_accuracy")["mean"])
        assert_rounded(balanced, of("link_balanced_accuracy")["mean"])
        assert_rounded(auc, of("link_auc")["mean"])


def test_docs_of_folded_images_have_the_mic_of_the_readers() -> None:
    readers, table1 = rows_of("cmcl-folded"), rows_of("cmcl-table1")
    keys = (
        ("cmcl", "free GP", "mic_linked"),
        ("cells", "free GP", "mic_linked"),
        ("boosted-trees", "free GP", "mic_linked"),
        ("boosted-trees + table", "free GP", "mic_linked"),
        ("cells", "free GP", "mic_true_column"),
        ("cmcl", "free GP", "paper"),
        ("cells", "free GP, noise 0.03", "mic_linked"),
        ("cells", "free GP, no noise", "mic_linked"),
    )
    lines = table_after("docs/cmcl.md", "On 8/16 and 10/20")
    for (_, *cells), (model, variant, metric) in zip(lines, keys, strict=True):
        rows = table1 if model == "cmcl" else readers
        for cell, graph in zip(cells, ("8/16", "10/20"), strict=True):
            name = "mic_linked" if metric == "paper" else metric
            row = rows["cross-modal", model, f"{graph} {variant}", name]
            assert len(row["per_seed"]) == 5
            assert_rounded(cell, row["paper" if metric == "paper" else "mean"])


def test_docs_of_real_x_rays_have_the_accuracies_of_the_readers() -> None:
    readers, latents = rows_of("covid-readers"), rows_of("cmcl-xray")

    def accuracy(variant: str, metric: str = "accuracy") -> float:
        return readers["covid-cxr", "pca-logistic", variant, metric]["mean"]

    texts = numbers_in(
        "docs/cmcl-pictures.md",
        r"reaches ([\d.]+) on held-out patients \(majority ([\d.]+)\)[^(]*\(([\d.]+)\); the"
        r" centre alone gives ([\d.]+)",
    )
    values = [
        accuracy("whole"),
        accuracy("whole", "majority_accuracy"),
        accuracy("frame"),
        accuracy("centre"),
    ]
    texts += numbers_in("docs/cmcl-pictures.md", r"no more than 64\s+\(([\d.]+)\)")
    texts += numbers_in(
        "docs/cmcl-pictures.md", r"of CMCL have ([\d.]+), the latent of `covid` ([\d.]+)\."
    )
    values += [accuracy("whole, 128 pixels")]
    (text,) = numbers_in("docs/cmcl-pictures.md", r"a convolutional classifier has ([\d.]+)\.")
    row = readers["covid-cxr", "convolutional-classifier", "whole", "accuracy"]
    assert len(row["per_seed"]) == 5
    assert_rounded(text, row["mean"])
    names = ("all_latents_accuracy", "link_accuracy")
    values += [latents["covid-cxr", "cmcl", "covid", name]["mean"] for name in names]
    for text, value in zip(texts, values, strict=True):
        assert_rounded(text, value)
    for variant in ("whole", "frame"):
        row = readers["covid-cxr", "pca-logistic", variant, "above_majority"]
        assert min(row["per_seed"].values()) > 0.05


def test_docs_of_the_contrast_have_the_numbers_of_both_columns() -> None:
    rows = rows_of("cmcl-contrast")

    def mean(model: str, variant: str, metric: str) -> float:
        row = rows["cross-modal", model, variant, metric]
        assert len(row["per_seed"]) == 3
        return row["mean"]

    lines = table_after("docs/cmcl.md", "Means of three simulators, 3/6")
    for (_, auc, *cells), columns in zip(lines, ("correlated", "independent"), strict=True):
        texts = [*NUMBER.findall(auc), *cells]
        values = [
            mean("true-latents", f"{columns} columns, {inputs}", "classifier_auc")
            for inputs in ("latents", "changes")
        ]
        values += [
            mean("cmcl", f"{columns} columns, {words}", metric)
            for metric in ("mic_linked", "shd")
            for words in ("no contrast", "contrast")
        ]
        for text, value in zip(texts, values, strict=True):
            assert_rounded(text, value)
    (saved,) = numbers_in("docs/cmcl.md", r"saves (\d+) % of the time")
    with_it = cmcl("cmcl-table2", "20/40", "train_seconds")
    without = cmcl("cmcl-table2", "20/40 no contrast", "train_seconds")
    assert_rounded(saved, 100 * (1 - without / with_it))
