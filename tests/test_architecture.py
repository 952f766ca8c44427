"""Rules of the source: layers of imports, lengths, names, no unpickling and no evaluation."""

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
WRITTEN = [  # every Python file
    path
    for folder in ("src", "tests", "benchmarks", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
MAX_LINE = 100
MAX_LINES = {"src": 300, "tests": 400}
MAX_TEST_NAME = 80
VAGUE_NAMES = {"found", "given", "kept", "seen", "said", "told", "parts"}  # use the noun

# imports against the layers that ARCHITECTURE.md names -> the method of Model that makes them
EXCEPTIONS = {("models/base.py", "training"): "fit", ("models/base.py", "serve"): "serve"}
# packages of an extra, and the subpackage that may import them
EXTRAS = {
    "serve": {"fastapi", "starlette", "pydantic", "uvicorn"},
    "data": {"pyarrow"},
    "tuning": {"optuna"},
    "experiments": {"ray", "submitit"},
}
CORE = [
    "intervae",
    "torch",
    "numpy",
    "scipy",
    "sklearn",
    "numba",
    "networkx",
    "PIL",
    "h5py",
    "matplotlib",
    "safetensors",
    "typer",
    "rich",
    "pandas",
    "threadpoolctl",
]
SIDE = ("metrics", "figures")  # may import causal, data and lower layers only


def part_of(path: Path) -> str:
    """Return the subpackage of a file, `models` for models/base.py; "" for the package itself."""
    first = path.relative_to(SOURCE).parts[0]
    return {"__init__.py": "", "__main__.py": "cli"}.get(first, first.removesuffix(".py"))


def layers() -> list[set[str]]:
    """Return the groups of the paragraph `errors, ...` <- ... of ARCHITECTURE.md, lowest first."""
    paragraph = next(text for text in MAP.split("\n\n") if text.startswith("`errors"))
    return [set(re.findall(r"\w+", group)) for group in paragraph.split("<-")]


def allowed(part: str) -> set[str]:
    """Return the subpackages that a subpackage may import."""
    groups = layers()
    if part in SIDE:
        return set().union(
            *groups[: next(i for i, group in enumerate(groups) if "data" in group)], {"data", part}
        )
    at = next(i for i, group in enumerate(groups) if part in group)
    models = next(i for i, group in enumerate(groups) if "models" in group)
    beside = groups[at] if at == 0 else {part}  # only the lowest layer imports within itself
    return set().union(
        *groups[:at],
        beside,
        {"figures"} if at >= models else (),
        {"metrics"} if at > models else (),
    )


def imported(path: Path) -> list[tuple[str, int]]:
    """Return the subpackages that a file imports, anywhere in it, with the line."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}, line {node.lineno}: a relative import"
            names = (
                [f"intervae.{alias.name}" for alias in node.names]
                if node.module == "intervae"
                else [node.module or ""]
            )
            modules += [(name, node.lineno) for name in names]
    return [
        (name.split(".")[1] if "." in name else "", line)
        for name, line in modules
        if name.split(".")[0] == "intervae"
    ]


def test_architecture_page_names_every_subpackage() -> None:
    subpackages = {part_of(path) for path in MODULES} - {""}
    assert set().union(*layers(), SIDE) == subpackages
    tree = MAP.split("```")[1]
    for part in subpackages:
        assert re.search(rf"\b{part}(/|\.py)", tree), part


@pytest.mark.parametrize(
    "path", [p for p in MODULES if part_of(p)], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_go_one_way(path: Path) -> None:
    here, may = str(path.relative_to(SOURCE)), allowed(part_of(path)) | {""}
    wrong = [
        f"line {line} imports {part}"
        for part, line in imported(path)
        if part not in may and (here, part) not in EXCEPTIONS
    ]
    assert not wrong


def test_documented_exceptions_are_imported_inside_one_method_only() -> None:
    assert "`Model.fit` imports `training` when called" in " ".join(MAP.split())
    assert "`Model.serve` imports `serve`" in " ".join(MAP.split())
    for (here, part), method in EXCEPTIONS.items():
        tree = ast.parse((SOURCE / here).read_text(encoding="utf-8"))
        assert not any(
            isinstance(node, ast.ImportFrom) and f"intervae.{part}" in (node.module or "")
            for node in tree.body
        )
        inside = [
            f.name
            for f in ast.walk(tree)
            if isinstance(f, ast.FunctionDef) and any(p == part for p, _ in imports_of(f))
        ]
        assert inside == [method]


def imports_of(function: ast.FunctionDef) -> list[tuple[str, int]]:
    return [
        (node.module.split(".")[1], node.lineno)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("intervae.")
    ]


def test_package_itself_provides_only_the_version() -> None:
    """`import intervae` inside the package must not circumvent the layers."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "intervae"
            ):
                assert node.attr == "__version__", f"{path.name}, line {node.lineno}"


def test_package_imports_nothing_heavy() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    names = {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
    assert names <= {"__future__", "importlib", "typing"}


def test_core_imports_only_its_dependencies() -> None:
    known = {*CORE, *sys.stdlib_module_names}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                extra = EXTRAS.get(part_of(path), set())
                assert name.split(".")[0] in known | extra, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_file_opens_with_a_sentence_and_evaluates_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert not text or re.match(r"[A-Za-z`].*[.:]", ast.get_docstring(tree) or ""), (
        "a file opens with one sentence that says what it is"
    )
    for node in ast.walk(tree):
        where = f"line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name.split(".")[0] for alias in node.names} | {
                (getattr(node, "module", "") or "").split(".")[0]
            }
            assert not names & {
                "pickle",
                "cPickle",
                "dill",
                "cloudpickle",
                "joblib",
                "marshal",
                "shelve",
            }, where
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec", "compile", "__import__"), where
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            assert (on, node.func.attr) not in {
                ("torch", "load"),
                ("torch", "save"),
                ("os", "system"),
                ("os", "popen"),
            }, where
            assert node.func.attr not in ("read_pickle", "to_pickle"), where
        if isinstance(node, ast.keyword):
            unsafe = (
                isinstance(node.value, ast.Constant)
                and node.value.value is True
                and node.arg in ("allow_pickle", "shell")
            )
            assert not unsafe, f"{node.arg}=True"


def tracked() -> list[Path]:
    """Return the text files of the repository; without git, those of src, tests and docs."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    names = done.stdout.split("\0")
    if done.returncode:
        names = [
            str(path.relative_to(ROOT))
            for folder in ("src", "tests", "docs")
            for path in (ROOT / folder).rglob("*")
        ]
    kinds = {".py", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".cfg", ""}
    return [
        ROOT / name
        for name in names
        if name and (ROOT / name).suffix in kinds and (ROOT / name).is_file()
    ]


def test_no_file_names_a_local_folder_or_package_index() -> None:
    machine = re.compile(
        r"(?<![\w.\])}*])/(?:"
        + "|".join(("home", "root", "work", "Users", "mnt", "scratch", "tmp"))
        + r")/\w"
    )
    index = re.compile("|".join(("index-" + "url", "find-" + "links", "/" + "simple/")))
    for path in tracked():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not machine.search(line), (
                f"{path.relative_to(ROOT)}, line {number}: {line.strip()[:100]}"
            )
            assert not index.search(line), (
                f"{path.relative_to(ROOT)}, line {number}: {line.strip()[:100]}"
            )


def test_no_todo_comments() -> None:
    for path in tracked():
        if path.suffix == ".py" and path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\b(TODO|FIXME|XXX)\b", text), path
            assert "raise NotImplementedError" not in text, path


# ---- lengths and names --------------------------------------------------------------------------
def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_lines_have_at_most_100_characters() -> None:
    long = {}
    for path in [*WRITTEN, *SOURCE.rglob("*.md")]:
        lengths = [len(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if max(lengths, default=0) > MAX_LINE:
            long[name_of(path)] = [i for i, n in enumerate(lengths, 1) if n > MAX_LINE]
    assert not long


def test_pages_have_lines_of_at_most_100_characters() -> None:
    """Tables and lines with a link, which cannot be broken, may be longer."""
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            unbreakable = line.startswith("|") or "](" in line
            assert len(line) <= MAX_LINE or unbreakable, f"{name_of(path)}, line {number}"


def test_files_have_at_most_300_lines_and_tests_400() -> None:
    lengths = {
        name_of(path): len(path.read_text(encoding="utf-8").splitlines())
        for folder in MAX_LINES
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    assert not {name: n for name, n in lengths.items() if n > MAX_LINES[name.partition("/")[0]]}


def test_names_of_tests_are_short() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert len(node.name) < MAX_TEST_NAME, f"{name_of(path)}: {node.name}"


def test_every_class_has_a_name_of_its_own() -> None:
    files: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(name_of(path))
    assert not {name: paths for name, paths in files.items() if len(paths) > 1}


@pytest.mark.parametrize("path", WRITTEN, ids=name_of)
def test_variables_are_named_by_what_they_hold(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    assert not VAGUE_NAMES & {name.strip("_").lower() for name in names}
