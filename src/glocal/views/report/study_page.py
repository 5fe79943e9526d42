"""Study -> one self-contained HTML page: no network, no scripts, strict content policy, text from users is data."""

import base64
import html
import re
from collections import defaultdict
from typing import Any

import xarray

from glocal.views.figures.facts import counted
from glocal.views.figures.visible import shortened, visible
from glocal.views.plots.tidy import INTERVAL, check_study, measures, with_unit, worded
from glocal.views.report.story_page import content_hash, packaged
from glocal.views.study_words import Estimate, average, by_layer, in_words, sentences, verdict

_HEADING, _REASONS, _EXAMPLES = 160, 20, 5
# Bootstrap intervals of means of fewer texts cover clearly less than they say.
_ENOUGH = 30
_PAPER = "https://arxiv.org/abs/2004.05916"


def render_study(study: Any) -> str:
    """The report of a Study as a text. Raises `StudyError` for what is none."""
    check_study(study)
    style = packaged("explorer.css") + packaged("study.css")
    model = visible(str(study.attrs["settings"].get("model", "a model")))
    plots, words = _plots(study), sentences(study)
    parts = {
        "policy": f"default-src 'none'; style-src '{content_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'",
        "style": style,
        "title": html.escape(shortened(model, 60)),
        "heading": f'<h1 dir="auto">{html.escape(shortened(model, _HEADING))}</h1>',
        "about": "".join(f"<li>{html.escape(each)}</li>" for each in _about(study)),
        "notes": _notes(study),
        "verdict": html.escape(verdict(study)),
        "figures": _glance(study),
        "words": f'<p class="words" id="words">{html.escape(words)}</p>' if words else "",
        "contents": _contents(plots),
        "plots": "".join(_figure(*plot) for plot in plots),
        "table": _table(study),
        "methods": "".join(f"<p>{paragraph}</p>" for paragraph in _methods(study)),
        "rejected": _rejected(study.attrs["rejected"]),
        "settings": "".join(f"<dt>{html.escape(label)}</dt><dd>{html.escape(value)}</dd>" for label, value in _settings(study)),
    }
    # One pass, so that a text that looks like a place holder stays a text.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], packaged("study_page.html"))


def _about(study: xarray.Dataset) -> list[str]:
    attributes = study.attrs
    return [
        counted(int(attributes["texts"]), "text"),
        counted(int(attributes["tokens"]), "token"),
        f"{counted(study.sizes['layer'], 'layer')} x {counted(study.sizes['head'], 'head')}",
        f"{len(attributes['rejected']):,} rejected",
        _accuracy(study),
    ]


def _accuracy(study: xarray.Dataset) -> str:
    probes = study.attrs["settings"].get("options", {}).get("probes")
    return "exact attribution" if probes is None else f"attribution from a sketch (probes={probes})"


def _notes(study: xarray.Dataset) -> str:
    texts = int(study.attrs["texts"])
    if not texts or texts >= _ENOUGH:
        return ""
    note = f"{counted(texts, 'text')}: intervals from so few texts are too narrow." if texts > 1 else "Intervals need more than one text."
    return f'<ul class="notes" role="note" aria-label="notes"><li>{note}</li></ul>'


def _glance(study: xarray.Dataset) -> str:
    """The figures above the fold: means over layers and heads."""
    blocks = []
    for measure in measures(study)[:1]:
        value = in_words(average(by_layer(study, f"discrepancy_{measure.name}_over_heads")), measure.unit)
        unit = "" if measure.unit == "share" else f" {measure.unit}"
        blocks.append((f"mean {measure.label}", f"<p><b>{html.escape(value + unit)}</b> <span>{measure.direction}</span></p>"))
    for label, name, where in (
        ("stays on the own token", "own_share_over_heads", {}),
        ("falls on separators", "category_mass_over_heads", {"pattern": "separator"}),
    ):
        shares = {face: average(by_layer(study, name, map=face, **where)) for face in ("attention", "attribution")}
        rows = "".join(f'<p class="{face}"><b>{in_words(share, "share")}</b> <span>{face}</span></p>' for face, share in shares.items())
        blocks.append((label, rows))
    inside = "".join(f"<div><h2>{html.escape(label)}</h2>{rows}</div>" for label, rows in blocks)
    return f'<div class="figures">{inside}</div>'


def _plots(study: xarray.Dataset) -> list[tuple[str, str, str, str, bytes]]:
    """Name, title, caption, alternative text and picture of every plot."""
    # Here, so that whoever shows a single Story need not wait for matplotlib.
    from glocal.views.plots.drawing import picture
    from glocal.views.plots.gallery import available

    drawn = (draw() for kind in available(study).values() for draw in kind.values())
    return [(plot.name, plot.title, plot.caption, _alternative(plot), picture(plot, "svg", transparent=True)) for plot in drawn]


def _alternative(plot: Any) -> str:
    """What a picture shows, for who cannot see it: the range of every variable in it."""
    ranges = plot.data.groupby("variable", sort=False)["value"].agg(["min", "max"])
    said = [f"{str(name).replace('_', ' ')} from {row['min']:.3g} to {row['max']:.3g}" for name, row in ranges.iterrows()]
    return f"{plot.title}: {'; '.join(said)}."


def _figure(name: str, title: str, caption: str, alternative: str, picture: bytes) -> str:
    name, title, caption, alternative = (html.escape(visible(each)) for each in (name, title, caption, alternative))
    data = base64.b64encode(picture).decode("ascii")
    return (
        f'<figure id="{name}"><h2>{title}</h2><img alt="{alternative}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _contents(plots: list[tuple[str, str, str, str, bytes]]) -> str:
    links = [(name, title) for name, title, *_ in plots] + [("methods", "Methods")]
    inside = "".join(f'<a href="#{html.escape(name)}">{html.escape(visible(title))}</a>' for name, title in links)
    return f'<nav class="contents" aria-label="contents">{inside}</nav>'


def _table(study: xarray.Dataset) -> str:
    """The main numbers by layer with their intervals, as text."""
    columns = [
        (with_unit(measure.label, measure.unit), measure.unit, by_layer(study, f"discrepancy_{measure.name}_over_heads"))
        for measure in measures(study)
    ]
    for face in ("attention", "attribution"):
        columns.append((f"{face} on the own token", "share", by_layer(study, "own_share_over_heads", map=face)))
        found = by_layer(study, "category_mass_over_heads", map=face, pattern="separator")
        columns.append((f"{face} on {worded('separator')}", "share", found))
    columns.append(("same dominant pattern", "share", by_layer(study, "dominant_agreement")))
    columns = [column for column in columns if column[2]]
    if not columns:
        return ""
    head = "".join(f"<th scope=col>{html.escape(visible(label))}</th>" for label, _, _ in columns)
    rows = "".join(
        f"<tr><th scope=row>{layer}</th>{''.join(_cell(found, layer, unit) for _, unit, found in columns)}</tr>"
        for layer in study["layer"].values.tolist()
    )
    return (
        '<section aria-labelledby="layers"><h2 id="layers">By layer</h2>'
        f"<p>Means over heads and texts, with {INTERVAL}.</p>"
        f'<div class="scroll"><table class="layers"><thead><tr><th scope=col>layer</th>{head}</tr></thead>{rows}</table></div></section>'
    )


def _cell(found: list[Estimate], layer: int, unit: str) -> str:
    here = next((each for each in found if each.layer == layer), None)
    if here is None:
        return "<td>undefined</td>"
    low, high = in_words(here.low, unit), in_words(here.high, unit)
    interval = "" if "undefined" in (low, high) else f"<small>{low} to {high}</small>"
    return f"<td>{in_words(here.value, unit)}{interval}</td>"


def _methods(study: xarray.Dataset) -> list[str]:
    """Paragraphs of HTML."""
    scales = "; ".join(f"{with_unit(measure.label, measure.unit)}, {measure.direction}" for measure in measures(study))
    probes = study.attrs["settings"].get("options", {}).get("probes")
    sketch = "" if probes is None else f" It is a sketch from random directions (probes={html.escape(str(probes))})."
    return [
        "Attention is the weight that a head gives to every position of its layer's input. Attribution is the Frobenius norm of the "
        f"Jacobian of the head's output with respect to every input token, divided by the sum over tokens.{sketch} Both follow "
        f'<a href="{_PAPER}">Telling BERT&rsquo;s Full Story: from Local Attention to Global Aggregation</a> '
        "(Pascual, Brunner, Wattenhofer, EACL 2021).",
        f"Their discrepancy is measured target by target: {html.escape(visible(scales)) or 'not here'}.",
        "Every number is a mean over the targets of a text, and then over texts, each of which counts once. They have "
        f"{INTERVAL}, which say how much another sample of such texts would change a mean, not how much another model would.",
        "Pattern masses overlap: a separator can also be the next token. A head's dominant pattern is the one with its largest mean mass; "
        "chance, where it is shown, is what shuffling the heads within a layer gives.",
    ]


def _rejected(rejected: list[dict[str, Any]]) -> str:
    """How many rows were left out for what reason; reasons that differ in numbers alone count as one."""
    if not rejected:
        return ""
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in rejected:
        alike[re.sub(r"\d+", "0", str(each["reason"]))].append(each)
    groups = sorted(alike.values(), key=len, reverse=True)
    items = [f"<li>{_reason(group)}</li>" for group in groups[:_REASONS]]
    if len(groups) > _REASONS:
        items.append(f"<li>{counted(sum(map(len, groups[_REASONS:])), 'row')} for other reasons</li>")
    called = f"{counted(len(rejected), 'row')} rejected"
    return f'<section aria-labelledby="rejected"><h2 id="rejected">{called}</h2><ul>{"".join(items)}</ul></section>'


def _reason(group: list[dict[str, Any]]) -> str:
    where = ", ".join(_row(each) for each in group[:_EXAMPLES])
    more = f" and {len(group) - _EXAMPLES:,} more" if len(group) > _EXAMPLES else ""
    return html.escape(f"{counted(len(group), 'row')}: {shortened(visible(str(group[0]['reason'])), 300)} ({where}{more})")


def _row(each: dict[str, Any]) -> str:
    name = visible(str(each["name"])) if each.get("name") not in (None, "") else ""
    return f"row {each['number']}" + (f" “{shortened(name, 40)}”" if name and name != str(each["number"]) else "")


def _settings(study: xarray.Dataset) -> list[tuple[str, str]]:
    rows = []
    for key, value in study.attrs["settings"].items():
        inside = value.items() if isinstance(value, dict) else [("", value)]
        rows += [(f"{key} {part}".strip().replace("_", " "), _setting(each)) for part, each in inside]
    return [(visible(label), visible(text)) for label, text in rows]


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
