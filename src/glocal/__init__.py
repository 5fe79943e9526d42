"""glocal: what a transformer's head reads here (local attention), and what its output depends on (global attribution)."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from glocal.corpus.contrast import compare as compare
    from glocal.corpus.result import open_result as open
    from glocal.corpus.run import merge as merge
    from glocal.corpus.run import study as study
    from glocal.description import describe as describe
    from glocal.evaluation.run import evaluate as evaluate
    from glocal.pipeline import analyze as analyze
    from glocal.pipeline import plan as plan
    from glocal.results.store import save as save
    from glocal.views.plots.files import plot as plot
    from glocal.views.report.page_file import report as report

# Names are looked up when first used, so that `glocal --help` does not wait for torch.
_PUBLIC = {
    "analyze": ("glocal.pipeline", "analyze"),
    "plan": ("glocal.pipeline", "plan"),
    "describe": ("glocal.description", "describe"),
    "save": ("glocal.results.store", "save"),
    "open": ("glocal.corpus.result", "open_result"),
    "study": ("glocal.corpus.run", "study"),
    "merge": ("glocal.corpus.run", "merge"),
    "compare": ("glocal.corpus.contrast", "compare"),
    "plot": ("glocal.views.plots.files", "plot"),
    "report": ("glocal.views.report.page_file", "report"),
    "evaluate": ("glocal.evaluation.run", "evaluate"),
}

__all__ = [
    "__version__", "analyze", "compare", "describe", "evaluate", "merge", "open", "plan", "plot", "report", "save", "study",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'glocal' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value
