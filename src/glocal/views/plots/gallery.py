"""Which plots a Study has."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import xarray

from glocal.views.plots.by_layer import category_mass, entropy, hidden, own_share
from glocal.views.plots.discrepancies import discrepancy, discrepancy_by_category, discrepancy_by_length
from glocal.views.plots.drawing import Plot
from glocal.views.plots.heads import head_map, mass_correlation, persistence, survival
from glocal.views.plots.ladder import ladder
from glocal.views.plots.positions import position_profile
from glocal.views.plots.tidy import measures


class Kind(NamedTuple):
    """A kind of plot and the variables that it needs, where {} stands for a measure."""

    draw: Callable[..., Plot]
    needs: tuple[str, ...]

    @property
    def of_measures(self) -> bool:
        """Whether there is one such plot per measure."""
        return "{}" in self.needs[0]


# In the order in which a reader meets them.
KINDS = {
    "discrepancy": Kind(discrepancy, ("discrepancy_{}", "discrepancy_{}_over_heads")),
    "category_mass": Kind(category_mass, ("category_mass_over_heads",)),
    "own_share": Kind(own_share, ("own_share", "own_share_over_heads")),
    "entropy": Kind(entropy, ("entropy", "entropy_over_heads")),
    "persistence": Kind(persistence, ("persistence", "dominant_agreement")),
    "mass_correlation": Kind(mass_correlation, ("mass_correlation",)),
    "survival": Kind(survival, ("survival", "survival_expected", "survival_expected_high", "survival_p", "survival_heads")),
    "head_map": Kind(head_map, ("head_place",)),
    "position_profile": Kind(position_profile, ("position_profile_over_heads",)),
    "discrepancy_by_category": Kind(discrepancy_by_category, ("discrepancy_{}_by_category_over_heads",)),
    "discrepancy_by_length": Kind(discrepancy_by_length, ("discrepancy_{}_by_length_over_heads",)),
    "ladder": Kind(ladder, ("ladder_{}_over_heads",)),
    "hidden": Kind(hidden, ("hidden_own_share",)),
}


def available(study: xarray.Dataset) -> dict[str, dict[str, Callable[[], Plot]]]:
    """By kind and name, what draws each plot whose variables the Study holds, with a defined value among them."""
    found: dict[str, dict[str, Callable[[], Plot]]] = {}
    for called, kind in KINDS.items():
        for measure in [each.name for each in measures(study)] if kind.of_measures else [""]:
            if all(_defined(study, need.format(measure)) for need in kind.needs):
                arguments = (measure,) if measure else ()
                name = kind.needs[0].format(measure).removesuffix("_over_heads") if measure else called
                found.setdefault(called, {})[name] = partial(kind.draw, study, *arguments)
    return found


def _defined(study: xarray.Dataset, name: str) -> bool:
    return name in study and bool(study[name].notnull().any())
