"""The tables of docs/which-method.md about outputs: a sentiment classifier and the likeness of two sentences, with one command.

python -m studies.outputs [--texts 300] [--only NAME] [--out docs/which-method]

Every run is kept in studies/out/outputs; started again, only what is missing is computed.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import xarray

import glocal
from glocal import registry
from glocal.files import write_whole
from glocal.methods.gradient_x_input import gradient_x_input
from glocal.models.load import quiet
from glocal.request import Made, Work
from studies.rankings import best_first, cells, unsure
from studies.real import pairs
from studies.sentiment import HELD_OUT, classifier, snippets

HERE = Path(__file__).parent / "out"
METRICS = ("aopc", "log_odds", "accuracy_left", "comprehensiveness", "sufficiency", "blank_out", "blank_out_signed", "saliency_agreement")
SIMILARITY = ("aopc", "comprehensiveness", "sufficiency", "blank_out", "blank_out_signed", "saliency_agreement")
MAPS = ("attention", "rollout", "flow", "globenc_rollout", "alti_rollout", "value_zeroing_rollout", "attribution", "decompx")
# Exact attribution of hidden states takes six times as long and changes the third digit of a share.
OPTIONS = {"probes": 4}


def gradient_x_input_sum(work: Work) -> Made:
    """Gradient times input with its sign, beside the norm."""
    made = gradient_x_input(work, reduce="sum")
    return Made({"gradient_x_input_sum": made.variables["gradient_x_input"]}, {})


def methods(references: list[str]) -> dict[Any, dict[str, Any]]:
    """All methods to an output, and all maps that reach down to the tokens; plain attention beside them."""
    return {
        "gradient": {}, "gradient_x_input": {}, gradient_x_input_sum: {}, "integrated_gradients": {"steps": 20}, "occlusion": {},
        "attcat": {}, "contrast_cat": {"references": references}, "decompx_output": {}, **{name: {} for name in MAPS},
    }  # fmt: skip


def runs(texts: int) -> dict[str, dict[str, Any]]:
    """Arguments of `glocal.evaluate` by name."""
    models = HERE / "models"
    models.mkdir(parents=True, exist_ok=True)
    reviews = snippets(models)
    # Of both classes: which of them contrast with the output, Contrast-CAT finds out by itself.
    later = reviews[HELD_OUT:]
    contrast = [
        next(text for text, label in later[10 * number :] if label == name) for number in range(5) for name in ("negative", "positive")
    ]
    movie = {
        "texts": [{"text": text, "label": label} for text, label in reviews[:texts]],
        "model": lambda: classifier(models), "explain": "predicted_class", "methods": methods(contrast), "metrics": METRICS,
    }  # fmt: skip
    both = [{"text": one, "other": other} for one, other in pairs()]
    unlike = [row["text"] for row in both[-200::20]]
    return {
        "sentiment, masked": {**movie, "replace": "mask", "rounding": "floor"},
        "sentiment, deleted": {**movie, "replace": "delete", "rounding": "ceil"},
        "similarity, deleted": {
            "texts": both[: 2 * texts : 2], "model": lambda: "minilm", "pair": "other", "explain": "similarity:{pair}",
            "methods": methods(unlike), "metrics": SIMILARITY, "replace": "delete", "rounding": "ceil",
        },
    }  # fmt: skip


def computed(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The run's numbers, from its file where it is about the same question."""
    path = HERE / "outputs" / f"{name.replace(', ', '-')}.json"
    said = {key: repr(value) for key, value in asked.items() if key not in ("texts", "model", "methods")} | {"texts": len(asked["texts"])}
    said["methods"] = str([(registry.name_of(each), repr(options)) for each, options in asked["methods"].items()])
    if path.exists() and (kept := json.loads(path.read_text(encoding="utf-8")))["asked"] == said:
        return kept
    found = glocal.evaluate(**{**asked, "model": asked["model"]()}, options=OPTIONS)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"asked": said, "found": found.drop_vars(["value", "inverse"]).drop_attrs().to_dict()}
    write_whole(path, json.dumps(kept, default=float).encode())
    return kept


def table(name: str, kept: dict[str, Any]) -> str:
    """Means with intervals, best by the first metric first, beside that of inverted scores; and what may be chance."""
    found = xarray.Dataset.from_dict(kept["found"])
    metrics = found["metric"].values.tolist()
    asked = kept["asked"]
    lines = [f"## {name[:1].upper()}{name[1:]}\n"]
    choices = ", ".join(f"{key}={asked[key]}" for key in ("explain", "replace", "rounding"))
    lines.append(f"{asked['texts']} texts; {choices}; special tokens stay; 95 % intervals.\n")
    heads = [f"{metric} ({found['better'].sel(metric=metric).item()})" for metric in metrics]
    lines.append(f"| | {' | '.join([*heads, f'inverse {metrics[0]}'])} |")
    lines.append("|---" * (2 + len(metrics)) + "|")
    for explanation in best_first(found, metrics[0]):
        inverse = found["inverse_mean"].sel(metric=metrics[0], explanation=explanation).item()
        row = [*cells(found, explanation), f"{inverse:.3f}".replace("nan", "")]
        lines.append(f"| {explanation} | {' | '.join(row)} |")
    chance = ", ".join(unsure(found, metrics[0])) or "none"
    lines.append(f"\nDifferences of {metrics[0]} that may be chance (q >= 0.05): {chance}.\n")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--only", metavar="NAME", help="this run alone, without the file of tables")
    parser.add_argument("--out", type=Path, default=Path("docs/which-method"))
    parsed = parser.parse_args()
    quiet()
    said = ["# What outputs hang on\n\nMade by `python -m studies.outputs`; [what it says](../which-method.md).\n"]
    for name, asked in runs(parsed.texts).items():
        if parsed.only in (None, name):
            said.append(table(name, computed(name, asked)))
            print(said[-1], flush=True)
    if parsed.only is None:
        parsed.out.mkdir(parents=True, exist_ok=True)
        (parsed.out / "outputs.md").write_text("\n".join(said), encoding="utf-8")


if __name__ == "__main__":
    main()
