"""The commands about a corpus: study, merge, compare, plot, report, evaluate."""

import argparse
import json
from pathlib import Path
from typing import Any

from glocal import cli_evaluate
from glocal.cli_values import choices_of, listed, names_of

# What `glocal study` passes on under the same name.
_PASSED = (
    "model", "out", "text", "pair", "name", "label", "limit", "sample", "max_tokens", "long", "measures", "ladder", "hidden", "heads",
    "table", "stories", "of", "norm", "seed", "memory", "engine", "workers", "threads", "shard",
)  # fmt: skip
_INPUT = "txt, csv, tsv, jsonl or parquet file (also .gz, .zst), a Hugging Face dataset (hf:NAME[:CONFIGURATION][:SPLIT]) or -"


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    _add_study(commands)
    merge = commands.add_parser(
        "merge", help="put the shards of a study together", description="Copies the blocks of all folders into DIR and summarises them."
    )
    merge.add_argument("out", metavar="DIR")
    merge.add_argument("folders", metavar="SHARD", nargs="*", help="folders of shards; none: summarise DIR anew")
    merge.set_defaults(run=_merge)
    compare = commands.add_parser(
        "compare", help="what differs between two studies", description="Differences, second minus first, with intervals and corrected p."
    )
    compare.add_argument("first", metavar="STUDY1")
    compare.add_argument("second", metavar="STUDY2")
    compare.add_argument("--out", metavar="PATH", help="write the whole table (.csv)")
    compare.add_argument("--json", action="store_true", help="machine-readable")
    compare.set_defaults(run=_compare)
    plot = commands.add_parser("plot", help="draw a study", description="Every figure of a study, each with its numbers as a table.")
    plot.add_argument("study", metavar="STUDY")
    plot.add_argument("--out", metavar="DIR", help="folder of the figures (default: STUDY/figures)")
    plot.add_argument("--formats", type=listed, default=("pdf", "svg", "png"), metavar="A,B", help="pdf, svg, png (default: all)")
    plot.add_argument("--names", type=listed, metavar="A,B", help="only these figures")
    plot.set_defaults(run=_plot)
    report = commands.add_parser("report", help="the page of a Story or a study", description="One file, ready to send to a colleague.")
    report.add_argument("path", metavar="PATH", help="a Story (.zarr) or the folder of a study")
    report.add_argument("--out", metavar="FILE", help="where to (.html; default: beside PATH)")
    report.set_defaults(run=_report)
    cli_evaluate.add(commands, _INPUT)


def _add_study(commands: Any) -> None:
    study = commands.add_parser(
        "study",
        help="summarise a corpus, per layer and head, with intervals",
        description="Analyse every text of a corpus. Started again with the same arguments, it continues where it was stopped.",
        epilog="Exit codes: 0 done, 1 failed, 130 interrupted and resumable.",
    )
    option = study.add_argument
    option("texts", metavar="INPUT", help=_INPUT)
    option("--out", required=True, metavar="DIR", help="folder of the study, or an address that fsspec knows (s3://...)")
    option("--model", default="minilm", metavar="M", help="minilm (bundled), a folder or a hub id (default: minilm)")
    option("--text", default="text", metavar="COLUMN", help="column of the text (default: text)")
    option("--pair", metavar="COLUMN", help="column of the second text of a pair")
    option("--id", dest="name", metavar="COLUMN", help="column of a row's name")
    option("--label", metavar="COLUMN", help="column of the label")
    option("--limit", type=int, metavar="N", help="the first N rows")
    option("--sample", type=int, metavar="N", help="N rows, drawn by --seed")
    option("--max-tokens", type=int, metavar="N", help="longer texts are treated as --long says, and counted")
    option("--long", choices=("skip", "truncate", "window"), default="skip", help="what is done with longer texts (default: skip)")
    option("--measures", type=names_of("measures"), default=("jsd", "spearman"), metavar="A,B", help=choices_of("measures"))
    option("--probes", type=int, default=8, metavar="K", help="directions per source; 0: exact (default: 8)")
    option("--ladder", action="store_true", help="discrepancy with the attribution to every layer below; costs as many analyses")
    option("--hidden", action="store_true", help="contextual mixing of hidden states; costs one more analysis")
    option("--no-heads", dest="heads", action="store_false", help="leave out the distances between heads")
    option("--no-table", dest="table", action="store_false", help="leave out the per-text table (texts.parquet)")
    option(
        "--stories",
        type=lambda value: tuple(int(each) for each in listed(value)),
        default=(),
        metavar="1,5",
        help="keep these rows' Stories",
    )
    option("--of", choices=("head", "head_output"), default="head", help="what is explained (default: head)")
    option("--norm", choices=("frobenius", "summed"), default="frobenius", help="norm of a Jacobian block")
    option("--seed", type=int, default=0)
    option("--memory", default="4GiB", help="budget of a worker beyond the model (default: 4GiB)")
    option("--engine", choices=("local", "ray"), default="local", help="processes of this machine, or a running Ray cluster")
    option("--workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    option("--threads", type=int, default=1, metavar="N", help="threads of a worker (default: 1)")
    option("--shard", metavar="I/N", help="compute every Nth block from the Ith on; see glocal merge")
    option("--report", metavar="FILE", help="write the page of the study (.html)")
    option("--json", action="store_true", help="print the summary by layer as JSON")
    study.set_defaults(run=_study, interrupted="what is finished is kept, start the same command again to continue")


def _study(parsed: argparse.Namespace) -> int:
    import glocal
    from glocal.models.load import quiet
    from glocal.views.report.page_file import check_page

    quiet()
    if parsed.report:
        check_page(parsed.report)
    study = glocal.study(parsed.texts, probes=parsed.probes or None, **{name: getattr(parsed, name) for name in _PASSED})
    _say(study, parsed)
    if parsed.report:
        print(f"report  {Path(glocal.report(study, parsed.report)).resolve()}")
    return 0


def _merge(parsed: argparse.Namespace) -> int:
    import glocal

    _say(glocal.merge(parsed.out, *parsed.folders), parsed)
    return 0


def _say(study: Any, parsed: argparse.Namespace) -> None:
    from glocal.views.study_terminal import as_json, summary

    if getattr(parsed, "json", False):
        print(json.dumps(as_json(study), ensure_ascii=False, allow_nan=False))
        return
    from rich.console import Console

    summary(study, Console(highlight=False))
    print(f"study   {parsed.out}")


def _compare(parsed: argparse.Namespace) -> int:
    import glocal
    from glocal.views.study_terminal import comparison, comparison_table

    found = glocal.compare(parsed.first, parsed.second)
    table = comparison_table(found)
    if parsed.json:
        print(table.to_json(orient="records"))
    else:
        print(comparison(found))
    if parsed.out:
        table.to_csv(parsed.out, index=False)
        print(f"table   {Path(parsed.out).resolve()}")
    return 0


def _plot(parsed: argparse.Namespace) -> int:
    import glocal

    folder = parsed.out or Path(parsed.study) / "figures"
    for path in glocal.plot(glocal.open(parsed.study), folder, formats=parsed.formats, names=parsed.names):
        print(path)
    return 0


def _report(parsed: argparse.Namespace) -> int:
    import glocal

    path = Path(parsed.path)
    print(f"report  {Path(glocal.report(glocal.open(path), parsed.out or path.with_suffix('.html'))).resolve()}")
    return 0
