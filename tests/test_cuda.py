"""On a GPU: the same numbers, on the model's own device. Needs one, and is skipped without it."""

import numpy as np
import pytest
import torch
from families import ids, make_model, model

import glocal

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("engine", ["straight", "collapsed", "reverse"])
@pytest.mark.parametrize("name", ["Bert", "Llama"])
def test_a_gpu_gives_the_numbers_of_the_processor(name, engine):
    network = make_model(name).cuda()
    story = glocal.analyze(ids(), network, engine=engine)
    np.testing.assert_allclose(story.attribution, glocal.analyze(ids(), model(name), engine=engine).attribution, atol=1e-6)
    assert next(network.parameters()).is_cuda and story.attrs["device"].startswith("cuda")
