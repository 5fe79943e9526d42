"""Faithfulness metrics: what perturbing a text says about the scores of its tokens; one file each."""
