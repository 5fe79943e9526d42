"""How seconds grow with the number of tokens and of layers, beside the theory.

    python -m benchmarks.growth [--rounds 2]

Straight forward mode: n directions' worth for each of n tokens, n^2 L d^3, and n^3 L d^2 for the attention. Collapsed: maps n L d^3, then
n^2 L d^3. Only a part of the chunks of long texts is run; see `benchmarks.contestant`.
"""

import argparse
import math

from benchmarks.exact import run

TOKENS = {"glocal, straight": (8, 16, 32, 64, 128), "glocal, collapsed": (8, 16, 32, 64, 128)}


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    print("\n### Tokens, MiniLM\n")
    print("| engine | " + " | ".join(map(str, TOKENS["glocal, straight"])) + " | exponent from 32 | theory |\n" + "|---" * 8 + "|")
    for name, sizes in TOKENS.items():
        row(name, sizes, 2, 2, [fastest(name, n, 0, rounds) for n in sizes])
    print("\n### Layers, MiniLM, 16 tokens\n\n| engine | 1 | 2 | 4 | 6 | exponent from 2 | theory |\n" + "|---" * 7 + "|")
    for name in TOKENS:
        layers = (1, 2, 4, 6)
        row(name, layers, 1, 1, [fastest(name, 16, count, rounds) for count in layers])


def row(name: str, sizes: tuple[int, ...], since: int, theory: int, seconds: list[float]) -> None:
    """One line of a table; the exponent is fitted to the sizes from number `since` on."""
    slope = exponent(sizes[since:], seconds[since:])
    print(f"| {name} | {' | '.join(f'{each:.2f}' for each in seconds)} | {slope:.2f} | {theory} |", flush=True)


def fastest(name: str, tokens: int, layers: int, rounds: int) -> float:
    """The smaller of several runs, of about ten seconds each."""
    fraction = min(1.0, (22 / tokens) ** 2)
    return min(run(name, f"ids:{tokens}", fraction, layers)["seconds"] for _ in range(rounds))


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Slope of the logarithms, by least squares."""
    x, y = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


if __name__ == "__main__":
    main()
