"""What the tables of both rankings share: order, cells, and which differences may be chance."""

import xarray


def best_first(found: xarray.Dataset, metric: str) -> list[str]:
    """The explanations by their rank in a metric."""
    return found["explanation"].values[found["rank"].sel(metric=metric).values.argsort(kind="stable")].tolist()


def cells(found: xarray.Dataset, explanation: str) -> list[str]:
    """Mean and interval in every metric."""
    one = found.sel(explanation=explanation)
    values = [[one[name].sel(metric=each).item() for name in ("mean", "low", "high")] for each in found["metric"].values]
    return [f"{mean:.3f} ({low:.3f} to {high:.3f})" for mean, low, high in values]


def unsure(found: xarray.Dataset, metric: str) -> list[str]:
    """Pairs of explanations whose difference may be chance."""
    names = found["explanation"].values
    return [
        f"{one} and {other}"
        for place, one in enumerate(names)
        for other in names[place + 1 :]
        if not found["difference_q"].sel(metric=metric, explanation=one, other_explanation=other) < 0.05
    ]
