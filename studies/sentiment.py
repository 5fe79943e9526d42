"""A sentiment classifier from the bundled MiniLM: fine-tuned once on movie snippets that install as a package, then kept.

Texts: the movie-review snippets (Pang and Lee) that vaderSentiment's source distribution carries, each with the mean of 15 to 20 human
scores from -4 to 4; those within 0.5 of neutral are left out. The first 1,500 in a fixed random order are held out.
"""

import io
import json
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

from glocal.models.load import bundled

PACKAGE = "vaderSentiment==3.3.2"
HELD_OUT, EPOCHS, BATCH, RATE = 1500, 2, 32, 1e-4


def snippets(cache: Path) -> list[tuple[str, str]]:
    """(text, "positive" or "negative"), in a fixed random order."""
    found = list(cache.glob("vader*entiment-*.tar.gz"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", str(cache), PACKAGE], check=True)
        found = list(cache.glob("vader*entiment-*.tar.gz"))
    text = _inside(found[0].read_bytes(), "hutto_ICWSM_2014.tar.gz", "movieReviewSnippets_GroundTruth.txt")
    rows = [line.split("\t") for line in text.decode("utf-8-sig", "replace").splitlines()]
    made = [(row[2].strip(), "positive" if float(row[1]) > 0 else "negative") for row in rows if len(row) >= 3 and abs(float(row[1])) > 0.5]
    random.Random(0).shuffle(made)
    return made


def _inside(archive: bytes, *names: str) -> bytes:
    """The file at the end of a chain of names, each inside the one before."""
    for name in names:
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            member = opened.extractfile(next(each for each in opened.getmembers() if each.name.endswith(name)))
            assert member is not None
            archive = member.read()
    return archive


def classifier(cache: Path) -> str:
    """Folder of the fine-tuned model; trains it (about seven minutes on two cores) where it is not there yet."""
    folder = cache / "minilm-movie-sentiment"
    if (folder / "accuracy.json").exists():
        return str(folder)
    torch.manual_seed(0)
    names = ["negative", "positive"]
    model = BertForSequenceClassification.from_pretrained(
        bundled("minilm"), num_labels=2, id2label=dict(enumerate(names)), label2id={name: number for number, name in enumerate(names)},
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(bundled("minilm"))
    data = [(text, names.index(label)) for text, label in snippets(cache)]
    _train(model, tokenizer, data[HELD_OUT:])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "accuracy.json").write_text(json.dumps({"held_out": HELD_OUT, "accuracy": _accuracy(model, tokenizer, data[:HELD_OUT])}))
    return str(folder)


def _train(model: BertForSequenceClassification, tokenizer, data: list[tuple[str, int]]) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.01)
    steps = EPOCHS * (len(data) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, steps, pct_start=0.1)
    order = random.Random(1)
    model.train()
    for _ in range(EPOCHS):
        order.shuffle(data)
        for start in range(0, len(data) - BATCH + 1, BATCH):
            some = data[start : start + BATCH]
            inputs = tokenizer([text for text, _ in some], return_tensors="pt", padding=True, truncation=True, max_length=48)
            loss = model(**inputs, labels=torch.tensor([label for _, label in some])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
    model.eval()


def _accuracy(model: BertForSequenceClassification, tokenizer, data: list[tuple[str, int]]) -> float:
    right = 0
    with torch.no_grad():
        for start in range(0, len(data), 100):
            some = data[start : start + 100]
            inputs = tokenizer([text for text, _ in some], return_tensors="pt", padding=True, truncation=True)
            right += int((model(**inputs).logits.argmax(-1) == torch.tensor([label for _, label in some])).sum())
    return right / len(data)
