"""What an argument may be: read by the request that checks it and by the command line, which must not wait for torch."""

OF = ("head", "head_output", "hidden")
ORIGINS = ("embedding_output", "word")
FREEZES = ("attention", "norm", "activation")
NORMS = ("frobenius", "summed")
ENGINES = ("auto", "straight", "collapsed", "reverse")
REDUCED = ("reduced_products", "bfloat16")
PRECISIONS = ("float64", "float32", *REDUCED)
