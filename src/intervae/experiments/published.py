"""Every table and figure of the five seed papers, and what this repository has in its place.

`results_index` makes results/README.md of it. Figures are numbered as in the texts that we have:
of the beta-VAE and the Ladder VAE these are lecture slides, not the papers.
"""

from intervae.experiments.published_causal import CAUSAL
from intervae.experiments.published_entry import STATES, Published
from intervae.experiments.published_vaes import VAES

PUBLISHED = CAUSAL | VAES

__all__ = ["PUBLISHED", "STATES", "Published"]
