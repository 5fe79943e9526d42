"""The names of dimensions and coordinates: the only place that invents one."""

LAYER = "layer"
HEAD = "head"
TARGET = "target"
SOURCE = "source"
SOURCE_LAYER = "source_layer"
# Of `describe`: which of the two maps, which pattern, which relative position.
MAP = "map"
PATTERN = "pattern"
OFFSET = "offset"
# Of a study: kind of the target's token, class of text lengths, level of a quantile, the other of two heads, axis of a map of heads.
CATEGORY = "category"
LENGTH = "length"
LEVEL = "level"
OTHER_LAYER = "other_layer"
OTHER_HEAD = "other_head"
AXIS = "axis"
# Of an evaluation: which metric, which explanation (`method` is a keyword of xarray's `sel`) and which other one, which
# text, how much of it is taken away.
METRIC = "metric"
EXPLANATION = "explanation"
OTHER_EXPLANATION = "other_explanation"
TEXT = "text"
FRACTION = "fraction"

POSITIONS = (TARGET, SOURCE)

# What each position dimension says about its tokens; the coordinate is called `<dimension>_<field>`.
TOKEN_FIELDS = ("token", "raw_token", "token_id", "word", "segment", "category", "start", "end")


def token_coordinate(position: str, field: str) -> str:
    """Name of the coordinate holding `field` of the tokens along `position` ("target" or "source")."""
    return f"{position}_{field}"
