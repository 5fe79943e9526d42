"""The tables of docs/which-method.md: which maps agree with taking tokens away, on the MiniLM and sentences of STS-B, with one command.

python -m studies.agreement [--texts 300] [--out docs/which-method]
"""

import argparse
from pathlib import Path

import xarray

import glocal
from glocal.models.load import quiet
from studies.rankings import best_first, cells, unsure
from studies.real import sentences

RUNS = {
    "heads": {"of": "head"},
    "heads, mean word vector": {"of": "head", "replace": "mean"},
    "layers": {"of": "hidden"},
    "layers, mean word vector": {"of": "hidden", "replace": "mean"},
}


def table(name: str, found: xarray.Dataset) -> str:
    """Means with intervals, best first by the first metric, and by layer."""
    metrics, layers = found["metric"].values.tolist(), found["layer"].values.tolist()
    lines = [f"## {name}\n", f"{found.attrs['texts']} texts; 95 % intervals; *by layer* is {metrics[0]}.\n"]
    heads = [f"{metric} ({found['better'].sel(metric=metric).item()} is better)" for metric in metrics]
    lines.append(f"| | {' | '.join([*heads, *(f'layer {layer}' for layer in layers)])} |")
    lines.append("|---" * (1 + len(metrics) + len(layers)) + "|")
    for explanation in best_first(found, metrics[0]):
        by_layer = found["by_layer"].sel(metric=metrics[0], explanation=explanation).values
        row = [*cells(found, explanation), *(f"{value:.2f}" for value in by_layer)]
        lines.append(f"| {explanation} | {' | '.join(row)} |")
    chance = [f"{pair} ({metric})" for metric in metrics for pair in unsure(found, metric)]
    lines.append(f"\nDifferences that may be chance (q >= 0.05): {', '.join(chance) or 'none'}.\n")
    return "\n".join(lines)


def main() -> None:
    """Run all comparisons and write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("docs/which-method"))
    parsed = parser.parse_args()
    quiet()
    said = ["# Agreement with occlusion\n\nMade by `python -m studies.agreement`; [what it says](../which-method.md).\n"]
    for name, options in RUNS.items():
        found = glocal.evaluate(sentences()[: parsed.texts], options={"probes": 16}, **options)
        said.append(table(name, found))
        print(said[-1], flush=True)
    parsed.out.mkdir(parents=True, exist_ok=True)
    (parsed.out / "tables.md").write_text("\n".join(said), encoding="utf-8")


if __name__ == "__main__":
    main()
