"""CausalGAN (Kocaoglu et al., ICLR 2018): labels from a causal graph, images from the labels.

`controller`: the causal controller, one network per label on the known graph (sec. 4).
`label_sampling`: its samples under do() and given evidence.
`model`: the generator between a discriminator, a labeler and an anti-labeler (sec. 5).
`labels`: label inputs of the generator and losses of the labelers. `schedule`: the two phases.
"""

from intervae.models.causal_gan.model import CausalGAN

__all__ = ["CausalGAN"]
