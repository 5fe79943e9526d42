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

POSITIONS = (TARGET, SOURCE)

# What each position dimension says about its tokens; the coordinate is called `<dimension>_<field>`.
TOKEN_FIELDS = ("token", "raw_token", "token_id", "word", "segment", "category", "start", "end")


def token_coordinate(position: str, field: str) -> str:
    """Name of the coordinate holding `field` of the tokens along `position` ("target" or "source")."""
    return f"{position}_{field}"
