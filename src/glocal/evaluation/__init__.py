"""Scores of tokens -> how faithful they are: perturb texts, compute metrics, rank methods."""
