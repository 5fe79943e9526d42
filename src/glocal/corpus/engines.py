"""Who computes the blocks: this process, other processes of this machine, or actors of a Ray cluster. All give the same bytes."""

import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from glocal.corpus.block import Done, Job, compute
from glocal.corpus.texts import Item
from glocal.errors import ChoiceError, StudyError
from glocal.models.load import quiet

ENGINES = ("local", "ray")
# Blocks that wait beside those being computed, for each worker: enough to keep it busy, few enough for flat memory.
_WAITING = 2

Block = tuple[int, list[Item]]


def computed(job: Job, blocks: Iterator[Block], *, engine: str, workers: int) -> Iterator[Done]:
    """Every block, in the order in which they are finished. Raises `ChoiceError`, `StudyError`."""
    if engine not in ENGINES:
        raise ChoiceError(f"There is no engine {engine!r}.", asked=engine, allowed=", ".join(ENGINES), do="choose one of these")
    if type(workers) is not int or workers < 1:
        raise ChoiceError("The number of workers cannot be used.", asked=f"workers={workers!r}", allowed="1 or more", do="choose one")
    if engine == "ray":
        yield from _by_ray(job, blocks, workers)
    elif workers > 1:
        yield from _by_processes(job, blocks, workers)
    else:
        with _threads(job.threads):
            for number, rows in blocks:
                yield compute(job, number, rows)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_JOB: list[Job] = []  # of a worker process


def _begin(job: Job) -> None:
    # Ctrl-C reaches the whole group of processes; the one that writes the blocks decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet()
    torch.set_num_threads(job.threads)
    _JOB[:] = [job]


def _compute(number: int, rows: list[Item]) -> Done:
    return compute(_JOB[0], number, rows)


def _by_processes(job: Job, blocks: Iterator[Block], workers: int) -> Iterator[Done]:
    """loky's processes do not import the caller's script, so that it needs no `if __name__ == "__main__"`."""
    from concurrent.futures import BrokenExecutor

    from loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(workers, timeout=None, initializer=_begin, initargs=(job,))
    finished = False
    try:
        yield from _in_turn(
            blocks, workers * _WAITING, lambda number, rows: pool.submit(_compute, number, rows), lambda future: future.result()
        )
        finished = True
    except BrokenExecutor as error:
        raise StudyError(
            "A worker process died.",
            found=next(iter(str(error).strip().splitlines()), type(error).__name__),
            do="check memory (each worker holds the model); start the same command again, with fewer workers",
        ) from error
    finally:
        pool.shutdown(wait=True, kill_workers=not finished)


def _by_ray(job: Job, blocks: Iterator[Block], workers: int) -> Iterator[Done]:
    """One actor a worker; Ray starts a lost one anew and repeats what it was doing."""
    try:
        import ray
    except ImportError as error:
        raise StudyError("Ray is not installed.", asked='engine="ray"', do='pip install "glocal[ray]"') from error
    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False)
        except ConnectionError as error:
            raise StudyError(
                "There is no Ray cluster.",
                asked='engine="ray"',
                found="nothing at the address that RAY_ADDRESS or this machine names",
                do="start one with `ray start --head`, or call ray.init() before",
            ) from error

    actor = ray.remote(num_cpus=job.threads, max_restarts=-1, max_task_retries=-1)(_Actor)
    shared = ray.put(job)
    actors: deque[Any] = deque(actor.remote(shared) for _ in range(workers))

    def begin(number: int, rows: list[Item]) -> Any:
        actors.rotate(-1)
        return actors[-1].compute.remote(number, rows)

    try:
        yield from _in_turn(blocks, workers * _WAITING, begin, ray.get)
    finally:
        for each in actors:
            ray.kill(each)


class _Actor:
    def __init__(self, job: Job):
        quiet()
        torch.set_num_threads(job.threads)
        self.job = job

    def compute(self, number: int, rows: list[Item]) -> Done:
        return compute(self.job, number, rows)


def _in_turn(blocks: Iterator[Block], most: int, begin: Callable[..., Any], finish: Callable[[Any], Done]) -> Iterator[Done]:
    """Keep `most` blocks under way, and give them back in their order."""
    running: deque[Any] = deque()
    for number, rows in blocks:
        running.append(begin(number, rows))
        if len(running) >= most:
            yield finish(running.popleft())
    while running:
        yield finish(running.popleft())
