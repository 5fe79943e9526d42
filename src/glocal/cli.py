"""The command line: parse, then call. Choices come from the registries; heavy imports wait until a command needs them."""

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glocal import __version__, choices, cli_corpus, registry
from glocal.cli_values import choices_of, groups, listed, names_of, probes, ranges
from glocal.errors import GlocalError, GlocalWarning

# Exit codes: 0 done, 1 a deliberate error, 2 wrong arguments (argparse), 130 interrupted.
_FAILED, _INTERRUPTED = 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `glocal` command and return its exit code."""
    parsed = _parser().parse_args(arguments)
    warnings.showwarning = _show_warning
    try:
        return parsed.run(parsed)
    except GlocalError as error:
        print(f"glocal: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print(f"glocal: interrupted; {getattr(parsed, 'interrupted', 'nothing was written')}", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): what it wanted was written.
        sys.stderr.close()
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glocal", description="What a transformer's heads read (attention), and what their outputs depend on (attribution)."
    )
    parser.add_argument("--version", action="version", version=f"glocal {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_analyze(commands)
    _add_plan(commands)
    cli_corpus.add(commands)
    for folder in ("methods", "measures", "metrics"):
        table = commands.add_parser(folder, help=f"list the {folder}", description=f"All {folder}, with source and limits.")
        table.add_argument("--json", action="store_true", help="machine-readable")
        table.set_defaults(run=_table, folder=folder)
    return parser


def _add_analyze(commands: Any) -> None:
    analyze = commands.add_parser(
        "analyze",
        help="tell the story of one text",
        description="Attention and exact gradient attribution of every head, layer and position for one text.",
        epilog="Layers and heads count from 1, targets from 0.",
    )
    _add_request(analyze)
    analyze.add_argument("--out", metavar="PATH", help="save the Story (.zarr)")
    analyze.add_argument("--report", metavar="PATH", help="write the HTML report")
    analyze.add_argument("--overwrite", action="store_true", help="replace an existing --out")
    analyze.add_argument("--json", action="store_true", help="print the Story as JSON instead of the summary")
    analyze.set_defaults(run=_analyze)


def _add_plan(commands: Any) -> None:
    plan = commands.add_parser(
        "plan",
        help="how an analysis would be computed, and how long it would take",
        description="Engine, directions, chunks, estimated seconds and bytes of an analysis, without doing it.",
    )
    _add_request(plan)
    plan.add_argument("--json", action="store_true", help="machine-readable")
    plan.set_defaults(run=_plan)


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", help="the text; - reads it from standard input")
    parser.add_argument("--pair", metavar="TEXT2", help="second text of a sentence pair")
    parser.add_argument("--model", default="minilm", metavar="M", help="minilm (bundled), a folder or a hub id (default: minilm)")
    parser.add_argument(
        "--methods", type=names_of("methods"), default=("attention", "attribution"), metavar="A,B", help=choices_of("methods")
    )
    parser.add_argument("--measures", type=names_of("measures"), default=("jsd",), metavar="A,B", help=choices_of("measures"))
    parser.add_argument("--of", choices=choices.OF, default="head", help="what is explained (default: head)")
    parser.add_argument("--origin", choices=choices.ORIGINS, default="embedding_output", help="what it is attributed to")
    parser.add_argument("--source-layer", type=int, default=0, metavar="L", help="attribute to the input of layer L+1 (default: 0)")
    parser.add_argument("--freeze", type=listed, default=(), metavar="A,B", help=f"hold constant: {', '.join(choices.FREEZES)}")
    parser.add_argument("--ladder", action="store_true", help="discrepancy with the attribution to every layer below")
    parser.add_argument("--norm", choices=choices.NORMS, default="frobenius", help="norm of a Jacobian block")
    parser.add_argument("--times-input", action="store_true", help="scale the Jacobian by the input")
    parser.add_argument(
        "--explain", metavar="OUTPUT", help="the output that methods to an output explain: class:NAME, predicted_class, probability:NAME, "
        "next_token[:TEXT], token:PLACE[:TEXT], masked_token[:TEXT], difference:A/B, similarity:TEXT",
    )  # fmt: skip
    parser.add_argument("--engine", choices=choices.ENGINES, default="auto", help="how it is computed (default: auto)")
    parser.add_argument("--probes", type=probes, metavar="K", help="sketch with K directions per source; auto: as --error needs")
    parser.add_argument("--error", type=float, default=0.02, metavar="E", help="mean total variation of a row for auto (default: 0.02)")
    parser.add_argument(
        "--time", default="60s", metavar="T", help="exact up to this estimate, then a sketch; none: no limit (default: 60s)"
    )
    parser.add_argument("--precision", choices=choices.PRECISIONS, help="type of the computation (default: as the model)")
    for name in ("layers", "heads", "targets"):
        parser.add_argument(f"--{name}", type=ranges, metavar="1,3-5", help=f"only these {name}")
    parser.add_argument(
        "--groups", type=groups, metavar="G", help="sources taken together: word, sentence, segment, or a number per token: 0,1,1,2"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sketch (default: 0)")
    parser.add_argument("--memory", default="4GiB", help="budget beyond the model (default: 4GiB)")
    parser.add_argument("--truncation", action="store_true", help="cut texts that are longer than the model")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that comes with a model")
    parser.add_argument("--allow-pickle", action="store_true", help="load pickled weights")


def _analyze(parsed: argparse.Namespace) -> int:
    import glocal
    from glocal.models.load import quiet
    from glocal.results.store import check_destination
    from glocal.views.report.page_file import check_page
    from glocal.views.report.story_page import refuse_groups
    from glocal.views.terminal import as_json, summary

    quiet()
    if parsed.out:
        check_destination(parsed.out, overwrite=parsed.overwrite)
    if parsed.report:
        refuse_groups(parsed.groups)
        check_page(parsed.report)
    story = glocal.analyze(_text(parsed), **_passed(parsed), explain=parsed.explain)
    if parsed.json:
        json.dump(as_json(story), sys.stdout, ensure_ascii=False, allow_nan=False)
        print()
    else:
        from rich.console import Console

        summary(story, Console(highlight=False))
    # With --json the standard output is the document alone.
    said = sys.stderr if parsed.json else sys.stdout
    if parsed.out:
        print(f"story   {glocal.save(story, parsed.out, overwrite=parsed.overwrite)}", file=said)
    if parsed.report:
        print(f"report  {Path(glocal.report(story, parsed.report)).resolve()}", file=said)
    return 0


def _plan(parsed: argparse.Namespace) -> int:
    import glocal
    from glocal.models.load import quiet
    from glocal.views.terminal import finite, planned

    quiet()
    plan = glocal.plan(_text(parsed), **_passed(parsed)).as_dict()
    print(json.dumps(finite(plan), allow_nan=False) if parsed.json else planned(plan))
    return 0


# What `plan` prices does not hang on the output that is explained.
_PASSED = (
    "model", "methods", "measures", "of", "origin", "source_layer", "freeze", "ladder", "norm", "times_input", "engine", "probes", "error",
    "time", "precision", "layers", "heads", "targets", "groups", "seed", "memory", "truncation", "trust_remote_code", "allow_pickle",
)  # fmt: skip


def _passed(parsed: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(parsed, name) for name in _PASSED}


def _text(parsed: argparse.Namespace) -> Any:
    text = sys.stdin.read().rstrip("\n") if parsed.text == "-" else parsed.text
    return text if parsed.pair is None else (text, parsed.pair)


def _table(parsed: argparse.Namespace) -> int:
    cards = registry.cards(parsed.folder)
    if parsed.json:
        from glocal.views.terminal import finite

        plain = {name: {**vars(card), "extra": dict(card.extra)} for name, card in cards.items()}
        print(json.dumps(finite(plain), ensure_ascii=False, allow_nan=False))
        return 0
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    fields = ("name", "summary", "source") + (("cost", "limits") if parsed.folder == "methods" else ("unit", "limits"))
    for field in fields:
        table.add_column(field, overflow="fold", no_wrap=field == "name")
    for name, card in cards.items():
        row = vars(card) | dict(card.extra) | {"name": name}
        table.add_row(*(Text(str(row.get(field, ""))) for field in fields))
    Console(highlight=False).print(table)
    return 0


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, GlocalWarning):
        print(f"glocal: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
