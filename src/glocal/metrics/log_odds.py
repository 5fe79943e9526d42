"""Mean logarithm of how much of a probability is left."""

import numpy

from glocal.metrics._evidence import Evidence
from glocal.registry import registered


@registered(
    summary="mean logarithm of how much of a probability is left",
    source="Shrikumar et al. 2017; Han et al. 2025 (Contrast-CAT)",
    needs="removed",
    limits="defined for positive outputs only, such as probabilities; dominated by the smallest",
    extra=(("unit", "nats"), ("better", "lower")),
)
def log_odds(evidence: Evidence) -> float:
    """Mean over the fractions of log f(x without the top K) / f(x), in nats; NaN where an output is not positive."""
    values = numpy.array([evidence.whole, *(evidence.removed[each] for each in evidence.fractions)])
    if not (values > 0).all():
        return float("nan")
    return float(numpy.log(values[1:] / values[0]).mean())
