"""A structural causal model over variables of mixed kinds: the variables of DeepSCM.

Pawlowski et al. 2020, sec. 3. Every variable has a mechanism of its parents and its own noise, see
variable_mechanisms.py; counterfactuals are Pearl's three steps of do.py. Values (B, n) and do() are
in normalised units, see variable_types.py: a model converts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from intervae.causal.do import Action, Do, Values, act, predict
from intervae.causal.graph import CausalGraph
from intervae.causal.variable_mechanisms import VariableMechanism, make_mechanism
from intervae.causal.variable_types import NamedVariable, VariableType, encode_values
from intervae.errors import DataError, QueryError, abbreviate

Noises = dict[str, Tensor]  # name -> (B,), or (B, classes) if binary or categorical


class StructuralCausalModel(nn.Module):
    """One mechanism per variable of an acyclic graph; `forward` is `log_prob`.

    `log_prob`, `abduct`, `draw_noise` and `predict` never synchronise with the host, so a CUDA
    graph captures them; `counterfactual` and `sample` check do() first.

    Arguments:
        graph: acyclic, over the names of the variables in any order.
        variables: the columns of the values.
        bins: bins of each spline.
        hidden, depth: units of each hidden layer and number of hidden layers of each network.
    """

    def __init__(
        self,
        graph: CausalGraph,
        variables: Sequence[NamedVariable],
        *,
        bins: int = 8,
        hidden: int = 64,
        depth: int = 2,
    ) -> None:
        super().__init__()
        self.names = tuple(variable.name for variable in variables)
        if sorted(graph.names) != sorted(self.names):
            raise DataError(
                f"the graph is over {abbreviate(graph.names) or 'no variable'}, but the variables "
                f"are {abbreviate(self.names)}; give a graph over the same names."
            )
        self.graph = graph.subgraph(self.names)
        self.order = tuple(self.graph.topological_order)  # raises an error for a cycle
        self.types = {v.name: VariableType.of(v) for v in variables}
        self.categories = {v.name: tuple(v.categories) for v in variables}
        self.parents = {name: tuple(self.graph.parents(name)) for name in self.names}
        self.mechanisms = nn.ModuleList(
            make_mechanism(
                self.types[name],
                sum(self.types[parent].width for parent in self.parents[name]),
                bins=bins,
                hidden=hidden,
                depth=depth,
            )
            for name in self.names
        )

    def mechanism(self, name: str) -> VariableMechanism:
        """Return the mechanism of a variable."""
        return cast(VariableMechanism, self.mechanisms[self.graph.index(name)])

    # ---- likelihood ---------------------------------------------------------------------------
    def log_prob(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return log p(value | parents) of each variable, (B, n); 0 where it is not `scored`.

        Arguments:
            values: (B, n); what is missing may be NaN.
            mask: (B, n), true where a value is known; None: where it is not NaN.
        """
        mask = ~values.isnan() if mask is None else mask.bool()
        # before the mechanisms, as a masked NaN would still reach the gradients
        columns = self._by_name(torch.where(mask, values, 0.0))
        terms = [
            self.mechanism(name).log_prob(columns[name], self._features(name, columns, len(values)))
            for name in self.names
        ]
        return torch.where(self.scored(mask), torch.stack(terms, dim=1), 0.0)

    def scored(self, mask: Tensor) -> Tensor:
        """Return where a variable and all its parents are known, (B, n), of where each is."""
        known = self._by_name(mask)
        columns = [
            torch.stack([known[name], *(known[parent] for parent in self.parents[name])]).all(0)
            for name in self.names
        ]
        return torch.stack(columns, dim=1)

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.log_prob(values, mask)

    # ---- abduction, action, prediction --------------------------------------------------------
    def abduct(
        self,
        values: Tensor,
        generator: torch.Generator | None = None,
        names: Sequence[str] | None = None,
    ) -> Noises:
        """Return the noises of values (B, n): exact if continuous, else a draw given the class.

        Arguments:
            names: of the variables whose noises are wanted; without them all.
        """
        columns = self._by_name(values)
        if names is None:
            names = self.names
            if torch.compiler.is_compiling():  # a traced program cannot draw; a root needs no noise
                names = tuple(name for name in names if self.parents[name])
        return {
            name: self.mechanism(name).abduct(
                columns[name], self._features(name, columns, values.shape[0]), generator
            )
            for name in names
        }

    def actions(self, do: Do | None) -> dict[str, Action]:
        """Check `do` and return its actions on values in normalised units.

        A text names a category; a number must be the value of a class.
        """
        actions = act(do, self.names, self.categories)
        for name, action in actions.items():
            if self.types[name].classes:
                by_name = do is not None and isinstance(do[name], str)
                actions[name] = partial(_act_on_class, name, self.types[name], action, by_name)
        return actions

    def predict(
        self,
        noises: Noises,
        actions: Mapping[str, Action] | None = None,
        factual: Tensor | None = None,
    ) -> Tensor:
        """Return the values (B, n) of noises, with actions in force, causes before effects.

        Arguments:
            noises: of `abduct` or `draw_noise`.
            actions: actions by name on values (B,) in normalised units.
            factual: (B, n), the values of which `noises` are. What is neither acted on nor a
                descendant keeps its value bit for bit, and so does every row of a descendant whose
                parents did not change.
        """
        before = {} if factual is None else self._by_name(factual)

        def equation(name: str, values: Values) -> Tensor:
            noise = noises[name]
            features = self._features(name, values, noise.shape[0])
            value = self.mechanism(name).predict(noise, features)
            if name not in before:
                return value
            unchanged = [values[parent] == before[parent] for parent in self.parents[name]]
            return torch.where(torch.stack(unchanged).all(0), before[name], value)

        after = predict(self.graph, equation, actions or {}, before)
        return torch.stack([after[name] for name in self.names], dim=1)

    def draw_noise(self, n: int, generator: torch.Generator | None = None) -> Noises:
        """Draw the noises of `n` samples."""
        return {name: self.mechanism(name).draw_noise(n, generator) for name in self.names}

    # ---- queries ------------------------------------------------------------------------------
    def counterfactual(
        self, values: Tensor, do: Do, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return values (B, n) under `do` with their noises unchanged; see `do.py` for `do`."""
        if values.isnan().any():
            raise QueryError("values with missing cells have no counterfactual; fill them first.")
        return self.predict(self.abduct(values, generator), self.actions(do), values)

    def sample(
        self, n: int, do: Do | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw `n` rows of values (n, variables) under `do`."""
        return self.predict(self.draw_noise(n, generator), self.actions(do))

    # ---- columns ------------------------------------------------------------------------------
    def _by_name(self, values: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.names, values.unbind(1), strict=True))

    def _features(self, name: str, values: Mapping[str, Tensor], rows: int) -> Tensor:
        """Return the features (rows, f) of the parents of a variable; f = 0 for a root."""
        parents = self.parents[name]
        if not parents:
            return next(self.parameters()).new_zeros(rows, 0)
        columns = torch.stack([values[parent] for parent in parents], dim=1)
        return encode_values(columns, [self.types[parent] for parent in parents])


def _act_on_class(
    name: str, variable: VariableType, action: Action, by_name: bool, value: Tensor
) -> Tensor:
    """Carry out an action on a variable with classes; an error if the result is not a class.

    With `by_name` the action sets the code of a category, not its value.
    """
    target = action(value)
    target = variable.values(target, target.dtype) if by_name else target
    if not torch.equal(variable.values(variable.codes(target), target.dtype), target):
        classes = "-1 or 1" if variable.kind == "binary" else f"0 to {variable.classes - 1}"
        raise QueryError(f"do({name}=...) is not the value of a class; give {classes}.")
    return target
