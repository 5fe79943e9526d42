"""A request for all layers, targets and tokens: what products through the layers are made of."""

from dataclasses import replace

from glocal.request import Work


def everything(work: Work) -> Work:
    """The same work without its choice of layers, targets and groups."""
    seen = work.seen
    request = replace(
        work.request, layers=tuple(range(1, seen.layers + 1)), targets=tuple(range(len(seen.hidden[0]))), groups=None, source_layer=0
    )
    return work._replace(request=request)
