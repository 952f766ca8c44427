"""The protocol of models with a report contains what the report uses."""

import ast
from pathlib import Path

from intervae import report
from intervae.models.base import Model
from intervae.models.capabilities import TableLinks


def test_report_uses_only_model_and_table_links() -> None:
    attributes = set()
    for path in Path(report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                attributes |= {node.attr} if node.value.id == "model" else set()
    in_init = {"spec", "settings", "trained"}
    declared = {*dir(Model), *dir(TableLinks), *Model.__annotations__, *in_init}
    assert {"effect_curve", "edge_rule"} <= attributes
    assert not attributes - declared
