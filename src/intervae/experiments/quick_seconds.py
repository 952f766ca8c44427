"""CPU seconds of the quick forms, each measured once, with one thread on a shared 2-core machine.

They are CPU seconds of the whole command on 2026-11-18 and 19 with torch 2.13.0+cpu, with the start
of Python and reading the data; of causal-prior-leaving, -gravity, -bounce and -spring training and
evaluation, measured apart. Forms that are not listed have not been measured.
"""

from __future__ import annotations

QUICK_SECONDS: dict[str, float] = {
    "causalvae-demo": 21.5,
    "causalvae-pendulum": 17.6,
    "causalvae-flow": 16.7,
    "causalvae-garden": 22.1,
    "causalvae-graph": 8.9,
    "causalvae-table1": 19.4,
    "betavae-metric": 74.2,
    "betavae-protocol": 7.0,
    "lvae-mnist": 34.4,
    "lvae-omniglot": 12.7,
    "causal-prior-parabola": 58.4,
    "causal-prior-motion": 26.8,
    "causal-prior-leaving": 26.1,
    "causal-prior-gravity": 48.6,
    "causal-prior-bounce": 24.8,
    "causal-prior-spring": 45.3,
    "sachs": 8.4,
    "cmcl-fig3": 18.7,
    "cmcl-table1": 32.3,
    "cmcl-table2": 39.6,
    "cmcl-mnist": 15.2,
    "cmcl-xray": 7.9,
    "counterfactual-celeba": 21.8,
}
