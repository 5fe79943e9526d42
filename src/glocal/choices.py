"""What an argument may be: read by the request that checks it and by the command line, which must not wait for torch."""

OF = ("head", "head_output", "hidden")
ORIGINS = ("embedding_output", "word")
FREEZES = ("attention", "norm", "activation")
NORMS = ("frobenius", "summed")
ENGINES = ("auto", "straight", "collapsed", "reverse")
REDUCED = ("reduced_products", "bfloat16")
PRECISIONS = ("float64", "float32", *REDUCED)
# Of an output that is explained, and of the tokens that an evaluation takes away.
SCALES = ("output", "logit", "probability")
ROUNDINGS = ("ceil", "floor", "round")
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
