"""CMCL: cross-modal causal structure and representation learning (Mao et al. 2022).

Data are pairs of an image x and a row u of a table. CMCL learns latents z of the image together
with a causal graph over latents and columns: u_i -> z_j, or z_j -> u_i.

    paper                                                       file
    Sec. 3.1  latent embedding q(z0 | x), Eqs. 5-6              networks.py, losses.py
    Sec. 3.1  causal latents q(z | z0, u), prior p(z | u),
    and C.1   Eqs. 7, 17-19                                     networks.py, inference.py, losses.py
    Sec. 3.2  causal DAG, Eqs. 8-10                             nets/node_networks.py, losses.py
    Sec. 3.3  counterfactual contrastive regulariser,
              Eqs. 11-13                                        losses.py
    Sec. 3.3  total loss, Eq. 14; Algorithm 1                   model.py, schedule.py
    App. B    images under do(u), Eqs. 15-16                    interventions.py
    App. D.2  convolutions                                      nets/paired_convolutions.py
    Fig. 5    heat maps                                         figures.py
    ours      direction of an edge                              final_graph.py and
                                                                discovery/edge_directions.py

All settings are in settings.py. docs/cmcl.md explains where we depart from the paper and why.
"""

from intervae.models.cmcl.model import CMCL

__all__ = ["CMCL"]
