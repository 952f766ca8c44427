"""CMCL as printed (Mao et al. 2022), for its synthetic images, MNIST and X-rays."""

from __future__ import annotations

from intervae.models.presets import Preset, Printed

NOT_PRINTED = "not printed; that of"

_SYNTHETIC = Preset(
    "Mao et al., CMCL, 2022",
    {
        "channels": Printed((16, 32, 64), "App. D.3: 16/16/32/32/64/64 (synthetic)"),
        "network": Printed("pairs", "App. D.3"),
        "posterior_widths": Printed((50, 50, 50), "App. D.3: 3 hidden layers of 50"),
        "graph_widths": Printed((10, 10, 10), "App. D.3: 3 hidden layers of 10"),
        "likelihood": Printed("bernoulli", "App. D.3: cross-entropy loss"),
        "pairing": Printed("index", "Eq. 17 and 18 pair z_j with u_j; the pairing is not stated"),
        "label_dropout": Printed(0.0, "Eq. 17: q(z | z0, u)"),
        "annealing": Printed(0.0, "Eq. 19: weight 1"),
        "warm_up": Printed(0, "Eq. 6 and 19: weight 1"),
        "embedding_weight": Printed(1.0, "Eq. 14"),
        "causal_weight": Printed(1.0, "Eq. 14"),
        "graph_weight": Printed(1.0, "Eq. 14"),
        "contrast_weight": Printed(1.0, "Eq. 14"),
        "training_steps": Printed("alternating", "Algorithm 1, (a) to (d)"),
        "graph_loss": Printed("mse", "Eq. 8 and 10: squared errors"),
        "graph_latents": Printed("sample", "Algorithm 1 (c): train_DAG(z, u)"),
        "standardise": Printed(False, "Eq. 10 is over V = [z, u] as it is"),
        "dag_gradient_start": Printed(0.0, "Algorithm 1 (c) updates phi from the start"),
        "acyclicity": Printed("penalty", "Eq. 10: + alpha_2 h(W)"),
        "acyclicity_weight": Printed(1.0, "not printed [alpha_2]"),
        "sparsity": Printed(0.01, f"{NOT_PRINTED} NOTEARS's code [alpha_1]"),
        "decay": Printed(0.0, "Eq. 10 has no such term"),
        "graph_limit": Printed(None, "Eq. 10 has no such limit"),
        "bipartite": Printed(False, "Eq. 8 is over all nodes; Fig. 3 shows noise everywhere"),
        "direction": Printed("norms", "Eq. 9: W of the first layers"),
        "edge_threshold": Printed(0.3, f"{NOT_PRINTED} NOTEARS's code"),
        "refit_steps": Printed(0, "no such step in Algorithm 1"),
        "contrast_start": Printed(0.0, "Algorithm 1 (d) runs from the start"),
        "rate_schedule": Printed("constant", "not printed"),
        "learning_rate": Printed(1e-3, "not printed"),
        "graph_rate": Printed(1e-3, "not printed"),
        "clip": Printed(None, "not printed"),
    },
    (
        "Eq. 5, 6 and 19: KL(q || p), outside the expectation and the logarithm; printed are "
        "KL(p || q) inside and a KL inside a logarithm.",
        "Eq. 13: logarithms of D and 1 - D, maximised by all; printed without logarithms.",
        "Eq. 8 and 10: h(W) minus the number of nodes; printed is d, the number of columns.",
        "Eq. 16: do() on an effect leaves p(x); printed is p(x | u).",
        'Algorithm 1: step (b) is printed as a copy of (a) and trains L2 here; "minimise" L1 and '
        "L2 is maximise.",
        "The contrast needs edges of both kinds, and starts after the first epoch, with those of W "
        "above 0.3 of the largest.",
        "The columns u are standardised; activations, epochs and batches are ours, not printed.",
    ),
)
PRESETS = {
    "paper": _SYNTHETIC,
    "paper-mnist": _SYNTHETIC.changed(
        channels=Printed((32, 64, 256), "App. D.3: 32/32/64/64/256/256 (MNIST)")
    ),
    "paper-xray": _SYNTHETIC.changed(
        channels=Printed((32, 64, 256, 512), "App. D.3: 32/32/64/64/256/256/512/512 (X-rays)")
    ),
}
