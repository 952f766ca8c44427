"""The rules of the house, read off the source: imports go one way, files stay short, and nothing is unpickled or evaluated."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "intervae"
MODULES = sorted(SOURCE.rglob("*.py"))
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
LONGEST = 450
DOORS = {("models/base.py", "training")}  # the one that ARCHITECTURE.md names: Model.fit
CORE = ["intervae", "torch", "numpy", "scipy", "sklearn", "numba", "networkx", "PIL", "h5py", "matplotlib", "safetensors", "typer", "rich", "pandas"]
SIDE = ("metrics", "figures")  # know arrays, graphs, variables and simulators


def part_of(path: Path) -> str:
    """The part of the house that a file belongs to: `models` for models/base.py, `cli` for cli.py and __main__.py, "" for the package itself."""
    first = path.relative_to(SOURCE).parts[0]
    return {"__init__.py": "", "__main__.py": "cli"}.get(first, first.removesuffix(".py"))


def layers() -> list[set[str]]:
    """The groups of the line `errors, ...` <- `causal` <- ... of ARCHITECTURE.md, lowest first."""
    line = next(line for line in MAP.splitlines() if line.startswith("`errors"))
    return [set(re.findall(r"\w+", group)) for group in line.split("<-")]


def allowed(part: str) -> set[str]:
    groups = layers()
    if part in SIDE:
        return set().union(*groups[: next(i for i, group in enumerate(groups) if "data" in group)], {"data", part})
    at = next(i for i, group in enumerate(groups) if part in group)
    beside = groups[at] if at == 0 else {part}  # the basics may know each other; parts that stand side by side do not
    return set().union(*groups[:at], beside, SIDE if at > next(i for i, group in enumerate(groups) if "models" in group) else ())


def imported(path: Path) -> list[tuple[str, int]]:
    """Parts of intervae that a file imports, anywhere in it, with the line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}, line {node.lineno}: a relative import"
            names = [f"intervae.{alias.name}" for alias in node.names] if node.module == "intervae" else [node.module or ""]
            found += [(name, node.lineno) for name in names]
    return [(name.split(".")[1] if "." in name else "", line) for name, line in found if name.split(".")[0] == "intervae"]


def test_the_map_names_every_part_of_the_house_and_no_other() -> None:
    parts = {part_of(path) for path in MODULES} - {""}
    assert set().union(*layers(), SIDE) == parts
    tree = MAP.split("```")[1]
    for part in parts:
        assert re.search(rf"\b{part}(/|\.py)", tree), part


@pytest.mark.parametrize("path", [p for p in MODULES if part_of(p)], ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    here, may = str(path.relative_to(SOURCE)), allowed(part_of(path)) | {""}
    wrong = [f"line {line} imports {part}" for part, line in imported(path) if part not in may and (here, part) not in DOORS]
    assert not wrong


def test_the_documented_door_is_there_and_opens_only_when_called() -> None:
    assert "`Model.fit` imports `training` when called" in MAP
    for here, part in DOORS:
        tree = ast.parse((SOURCE / here).read_text(encoding="utf-8"))
        assert not any(isinstance(node, ast.ImportFrom) and f"intervae.{part}" in (node.module or "") for node in tree.body)
        inside = [f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and any(p == part for p, _ in imports_of(f))]
        assert inside == ["fit"]


def imports_of(function: ast.FunctionDef) -> list[tuple[str, int]]:
    return [
        (node.module.split(".")[1], node.lineno)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("intervae.")
    ]


def test_only_the_version_is_taken_from_the_package_itself() -> None:
    """`import intervae` inside the package must not become a way round the layers."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "intervae":
                assert node.attr == "__version__", f"{path.name}, line {node.lineno}"


def test_importing_the_package_imports_nothing_heavy() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    names = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
    assert names <= {"__future__", "importlib", "typing"}


def test_the_core_imports_only_what_the_machine_without_a_network_has() -> None:
    known = {*CORE, *sys.stdlib_module_names}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in known, f"{path.name}, line {node.lineno}: {name}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_is_short_opens_with_a_sentence_and_runs_nothing_it_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST
    tree = ast.parse(text)
    assert not text or re.match(r"[A-Za-z`].*[.:]", ast.get_docstring(tree) or ""), "a file opens with one sentence: what it is"
    for node in ast.walk(tree):
        where = f"line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name.split(".")[0] for alias in node.names} | {(getattr(node, "module", "") or "").split(".")[0]}
            assert not names & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}, where
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec", "compile", "__import__"), where
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            assert (on, node.func.attr) not in {("torch", "load"), ("torch", "save"), ("os", "system"), ("os", "popen")}, where
            assert node.func.attr not in ("read_pickle", "to_pickle"), where
        if isinstance(node, ast.keyword):
            unsafe = isinstance(node.value, ast.Constant) and node.value.value is True and node.arg in ("allow_pickle", "shell")
            assert not unsafe, f"{node.arg}=True"


def tracked() -> list[Path]:
    """The text files of the repository; those of the folders we write where there is no git."""
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False)
    names = done.stdout.split("\0")
    if done.returncode:
        names = [str(path.relative_to(ROOT)) for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*")]
    kinds = {".py", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".cfg", ""}
    return [ROOT / name for name in names if name and (ROOT / name).suffix in kinds and (ROOT / name).is_file()]


def test_no_file_names_a_folder_of_somebodys_machine_or_a_package_index() -> None:
    machine = re.compile(r"(?<![\w.\])}*])/(?:" + "|".join(("home", "root", "work", "Users", "mnt", "scratch", "tmp")) + r")/\w")
    index = re.compile("|".join(("index-" + "url", "find-" + "links", "/" + "simple/")))
    for path in tracked():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not machine.search(line), f"{path.relative_to(ROOT)}, line {number}: {line.strip()[:100]}"
            assert not index.search(line), f"{path.relative_to(ROOT)}, line {number}: {line.strip()[:100]}"


def test_no_comment_leaves_work_undone() -> None:
    for path in tracked():
        if path.suffix == ".py" and path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\b(TODO|FIXME|XXX)\b", text), path
            assert "raise NotImplementedError" not in text, path
