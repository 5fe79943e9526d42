"""What people call the measures, and which way they point; a test compares this table with the registry, which needs torch."""

from dataclasses import dataclass

import xarray

PREFIX = "discrepancy_"

# name -> (label, whether larger values mean more alike, where the scale begins)
KNOWN: dict[str, tuple[str, bool, float | None]] = {
    "cosine": ("cosine similarity", True, 0.0),
    "hellinger": ("Hellinger distance", False, 0.0),
    "js_distance": ("Jensen-Shannon distance", False, 0.0),
    "jsd": ("Jensen-Shannon divergence", False, 0.0),
    "kendall": ("Kendall correlation", True, None),
    "kl": ("Kullback-Leibler divergence", False, 0.0),
    "kl_reverse": ("reverse Kullback-Leibler divergence", False, 0.0),
    "pearson": ("Pearson correlation", True, None),
    "spearman": ("Spearman correlation", True, None),
    "top1": ("agreement on the largest source", True, 0.0),
    "topk": ("overlap of the largest sources", True, 0.0),
    "total_variation": ("total variation", False, 0.0),
    "wasserstein": ("Wasserstein distance", False, 0.0),
}


@dataclass(frozen=True)
class Measure:
    """A measure as a reader meets it."""

    name: str
    label: str
    unit: str  # empty where there is none
    alike: bool  # larger values mean more alike
    low: float | None  # where its scale begins, None where that is not fixed

    @property
    def direction(self) -> str:
        """What larger values mean."""
        return "larger is more alike" if self.alike else "larger is further apart"


def measures(story: xarray.Dataset) -> list[Measure]:
    """The measures whose discrepancies the Story holds, in its order."""
    return [measure_of(story, str(name).removeprefix(PREFIX)) for name in story.data_vars if str(name).startswith(PREFIX)]


def measure_of(story: xarray.Dataset, name: str) -> Measure:
    """The measure called `name`; a user's own is called by its name and taken as a distance."""
    label, alike, low = KNOWN.get(name, (name.replace("_", " "), False, None))
    variable = next(story[prefix + name] for prefix in (PREFIX, "ladder_") if prefix + name in story)
    unit = variable.attrs["unit"]
    return Measure(name, label, "" if unit == "none" or unit.startswith("as ") else unit, alike, low)
