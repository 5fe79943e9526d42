"""The command that asks which explanations to trust."""

import argparse
import json
from typing import Any

from glocal import choices
from glocal.cli_values import choices_of, names_of, shares

# What `glocal evaluate` passes on under the same name.
_PASSED = (
    "model", "explain", "methods", "measures", "metrics", "of", "replace", "special", "rounding", "bins", "fractions", "scale", "row",
    "saliency", "text", "pair", "label", "cue", "limit", "sample", "seed",
)  # fmt: skip


def add(commands: Any, corpus: str) -> None:
    """Add the command to the parser; `corpus` says what an input may be."""
    evaluate = commands.add_parser(
        "evaluate",
        help="which explanations agree with what happens when tokens are taken away",
        description="Rank maps of heads or layers by their agreement with occlusion of the same outputs; or, with --explain, methods by "
        "what happens to an output of the model without the tokens that they find important. With paired intervals.",
        epilog="Percentages of tokens are written as shares: 0.1,0.2.",
    )
    option = evaluate.add_argument
    option("texts", metavar="INPUT", help=corpus)
    option("--model", default="minilm", metavar="M", help="minilm (bundled), a folder or a hub id (default: minilm)")
    option("--methods", type=names_of("methods"), metavar="A,B", help=choices_of("methods"))
    option("--text", default="text", metavar="COLUMN", help="column of the text (default: text)")
    option("--pair", metavar="COLUMN", help="column of the second text of a pair")
    option("--limit", type=int, metavar="N", help="the first N rows")
    option("--sample", type=int, metavar="N", help="N rows, drawn by --seed")
    option("--probes", type=int, default=16, metavar="K", help="directions per source of the attribution; 0: exact (default: 16)")
    option("--seed", type=int, default=0)
    option("--replace", metavar="HOW", help="word vectors by zero (default) or mean; with --explain: delete tokens (default) or mask them")
    option("--plots", metavar="DIR", help="draw the ranking, and what happens as tokens are taken away")
    option("--json", action="store_true", help="machine-readable")
    maps = evaluate.add_argument_group("maps of heads or layers")
    maps.add_argument("--of", choices=choices.OF, help="maps of heads (default), or of layers (hidden)")
    maps.add_argument("--measures", type=names_of("measures"), metavar="A,B", help=f"default: spearman, jsd; {choices_of('measures')}")
    _add_outputs(evaluate.add_argument_group("an output of the model"))
    evaluate.set_defaults(run=_evaluate)


def _add_outputs(group: Any) -> None:
    option = group.add_argument
    option(
        "--explain", metavar="OUTPUT", help="as in analyze; class:{label}: the true class, similarity:{pair}: likeness to the second text"
    )
    option("--metrics", type=names_of("metrics"), metavar="A,B", help=choices_of("metrics"))
    option("--label", metavar="COLUMN", help="column of the label")
    option("--cue", metavar="COLUMN", help="column with the part of the text that is known to matter")
    option("--special", action="store_true", help="special tokens may be taken away, too")
    option("--rounding", choices=choices.ROUNDINGS, default="ceil", help="of shares of the tokens (default: ceil)")
    option("--bins", type=shares, default=choices.BINS, metavar="A,B", help="default: 0.01,0.05,0.1,0.2,0.5")
    option("--fractions", type=shares, default=choices.FRACTIONS, metavar="A,B", help="default: 0.1,0.2,...,0.9")
    option("--scale", choices=choices.SCALES, help="default: probability where there is one")
    option("--row", type=_row, metavar="N", help="target whose row of a map counts; mean: all (default: where the output is read)")
    option("--saliency", default="gradient_x_input", metavar="METHOD", help="reference of saliency_agreement (default: gradient_x_input)")


def _row(value: str) -> int | str:
    if value == "mean":
        return value
    try:
        return int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is neither a position nor mean") from None


def _evaluate(parsed: argparse.Namespace) -> int:
    import glocal
    from glocal.models.load import quiet
    from glocal.views.evaluation_terminal import as_json, summary

    quiet()
    found = glocal.evaluate(parsed.texts, options={"probes": parsed.probes or None}, **{name: getattr(parsed, name) for name in _PASSED})
    print(json.dumps(as_json(found), ensure_ascii=False, allow_nan=False) if parsed.json else summary(found))
    if parsed.plots:
        for path in glocal.plot(found, parsed.plots):
            if not parsed.json:
                print(path)
    return 0
