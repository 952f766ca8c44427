"""Deep structural causal model (Pawlowski et al. 2020; De Sousa Ribeiro et al. 2023).

With variables of any kind: continuous, binary, categorical, ordered categories.

    noises -> variables, causes before effects -> picture = m(z, variables) + s(z, variables) u

| paper                                           | file: name                                    |
|-------------------------------------------------|-----------------------------------------------|
| 2020 sec. 3, invertible explicit mechanism:     | causal/variable_mechanisms.py:                |
| flow of a continuous variable                   | ContinuousMechanism; causal/splines.py        |
| 2020 sec. 3, mechanism of a discrete variable   | causal/variable_mechanisms.py:                |
|                                                 | GumbelMaxMechanism                            |
| not in the papers: ordered categories           | causal/variable_mechanisms.py:                |
|                                                 | OrdinalMechanism                              |
| 2020 sec. 3, amortised explicit mechanism:      | nets/picture_mechanism.py: PictureMechanism   |
| picture from (z, u) and its parents             |                                               |
| 2020 sec. 4, conditional VAE (picture=vae)      | nets/conditional_vae.py: ConditionalVAE       |
| 2023 sec. 3, hierarchical VAE (picture=hvae)    | nets/hierarchical_vae.py: HierarchicalVAE     |
| abduction, action, prediction of variables      | variables.py: GraphVariables;                 |
|                                                 | causal/do.py: act, predict                    |
| abduction and prediction of pictures            | model.py: DeepSCM.counterfactual              |
| loss: -log p(variables) - ELBO of the picture   | model.py: DeepSCM.loss                        |
| not in the papers: variables of unlabelled      | predictor.py: VariablePredictor               |
| pictures, missing labels                        |                                               |
| not in the papers: graph from the labels        | models/label_graph.py; discovery/             |
"""

from intervae.models.deep_scm.model import DeepSCM

__all__ = ["DeepSCM"]
