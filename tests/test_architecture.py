"""The house itself: imports point one way, names are words, functions fit a screen."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "glocal"
MODULES = sorted(SOURCE.rglob("*.py"))

# Stages from first to last; a stage imports itself and earlier ones only.
STAGES = [
    {"choices", "dims", "errors", "registry", "progress", "files", "groups", "layer"},
    {"models"},
    {"jacobian"},
    {"request"},
    {"methods"},
    {"measures", "patterns", "metrics"},
    {"discrepancy", "geometry"},
    {"results"},
    {"description", "job", "pipeline"},
    {"corpus", "evaluation"},
    {"views"},
    {"cli_values"},
    {"cli_evaluate"},
    {"cli_corpus"},
    {"cli"},
]
RANK = {name: rank for rank, stage in enumerate(STAGES) for name in stage}
# The plan a method asks for is what the request's types are made of; plain tensors only, no model code.
INDEPENDENT = {
    "jacobian": {"models"},
    "measures": {"models", "jacobian", "methods", "request"},
    "patterns": {"models", "jacobian", "methods", "request"},
    "metrics": {"models", "jacobian", "methods", "request"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def stage(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    own = stage(path)
    if own == "__init__":
        return
    assert own in RANK, f"{own} has no place in the house"
    for name in imports(path):
        if name.startswith("glocal.") and (other := name.split(".")[1]) in RANK:
            assert RANK[other] <= RANK[own], f"{path} imports {name}"
            assert other not in INDEPENDENT.get(own, set()), f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_models_know_transformers_and_views_never_import_torch(path):
    roots = {name.split(".")[0] for name in imports(path)}
    own = stage(path)
    assert "transformers" not in roots or own == "models"
    assert "torch" not in roots or own != "views"


def test_views_work_without_torch():
    code = "import sys; sys.modules['torch'] = None; import glocal.views.report.page_file, glocal.views.terminal, glocal.views.figures"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_functions_fit_one_screen_and_modules_stay_short(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            documented = ast.get_docstring(node) is not None
            first = node.body[1] if documented and len(node.body) > 1 else node.body[0]
            assert node.end_lineno - first.lineno + 1 <= 50, f"{path.name}:{node.name}"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_functions_have_docstrings(path):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path.name}:{node.name}"


def test_help_answers_without_heavy_imports():
    code = (
        "import sys\nfrom glocal.cli import main\ntry:\n    main(['analyze', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'transformers', 'xarray', 'numpy', 'rich'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip().endswith("[]")


def test_no_module_takes_the_place_of_a_public_name():
    """Importing a submodule sets an attribute of the package: it must never be one that users call."""
    import glocal

    modules = {path.name.removesuffix(".py") for path in SOURCE.iterdir()}
    assert not modules & set(glocal.__all__)
