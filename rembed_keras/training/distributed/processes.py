"""Several processes that make one run together: who they are, and how they wait for each other.

The first of them is the chief. It alone writes to the run's folder, and it alone does the stages in which nothing is
trained; the others wait meanwhile. What they say to each other goes through the store of keys and values that
TensorFlow and JAX keep for the processes they connect, so that waiting costs nothing and lasts as long as it must.
"""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rembed_keras.errors import UserError
from rembed_keras.interruption import Interrupted, PeerLost

LOST = "stopped because a peer process is lost: start all processes again"


@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them.

    Attributes:
        index: which of them this is, from 0.
        count: how many there are.
        put: tells all others a text by a key that was never used before.
        get: waits until a key is set, and gives its text.
        is_one_lost: whether another one has ended; None where the library that connects them takes care of it.
        look_every: seconds between two looks for one that is lost.
        grace: seconds after which a process that still has not noticed a loss is ended.

    All of them must call `by_chief` and `exchange` in the same order.

    >>> Processes().is_chief
    True
    """

    index: int = 0
    count: int = 1
    put: Callable[[str, str], object] | None = None
    get: Callable[[str], str] | None = None
    is_one_lost: Callable[[], bool] | None = None
    look_every: float = 5.0
    grace: float = 20.0
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _leaving: threading.Event = field(default_factory=threading.Event)

    @property
    def is_chief(self) -> bool:
        """Whether this is the one that writes."""
        return self.index == 0

    def by_chief(self, action: Callable[[], Any]) -> Any:
        """What the chief alone does, while the others wait; if it fails, all fail.

        Args:
            action: what to do.

        Returns:
            The result of `action`; on the others whether it is true.

        Raises:
            UserError: on the others, if the chief failed.
            Interrupted: on the others, if the chief was asked to stop.
        """
        if self.put is None or self.get is None:
            return action()
        key = f"rembed/{next(self._numbers)}"
        if not self.is_chief:
            answer = json.loads(self.get(key))
            if "error" in answer:
                self.leave()
                if answer.get("signal") is not None:
                    raise Interrupted(answer["signal"])
                raise UserError(f"process {self.index} stops because the first one did: {answer['error']}")
            return answer["result"]
        try:
            result = action()
        except BaseException as error:
            number = error.number if isinstance(error, Interrupted) else None
            self.put(key, json.dumps({"error": str(error), "signal": number}))
            self.leave()
            raise
        self.put(key, json.dumps({"result": bool(result)}))
        return result

    def leave(self) -> None:
        """Ends working together, for a reason that all know: the first process, which keeps the store, waits until no
        other needs it, as those that lose it would say that instead of the reason.
        """
        if self.put is None or self.get is None:
            return
        self._leaving.set()
        key = f"rembed/{next(self._numbers)}"
        if self.is_chief:
            for index in range(1, self.count):
                self.get(f"{key}/{index}")
        else:
            with contextlib.suppress(Exception):  # it may be lost before it could answer
                self.put(f"{key}/{self.index}", "")

    @contextlib.contextmanager
    def in_need_of_each_other(self) -> Iterator[None]:
        """A block in which the processes work together.

        What waits for one that is lost usually gets an error from its library. Where that fails it would wait for ever,
        so a thread looks too, and ends the process.

        Raises:
            PeerLost: when a peer process is lost, without which the work cannot continue.
        """
        if self.is_one_lost is not None:
            threading.Thread(target=self._watch, args=(self.is_one_lost,), daemon=True).start()
        try:
            yield
        except Exception as error:
            if self.count > 1 and _is_of_loss(error):
                raise PeerLost(LOST) from error
            raise
        finally:
            self._leaving.set()

    def _watch(self, is_one_lost):
        while not self._leaving.wait(self.look_every):
            if is_one_lost():
                if not self._leaving.wait(self.grace):
                    PeerLost(LOST).end()
                return

    def exchange(self, value: Any) -> list[Any]:
        """Tells all processes a value, and waits for theirs.

        Args:
            value: anything that JSON can say.

        Returns:
            The values of all processes, in their order.

        >>> Processes().exchange(7)
        [7]
        """
        if self.put is None or self.get is None:
            return [value]
        key = f"rembed/{next(self._numbers)}"
        self.put(f"{key}/{self.index}", json.dumps(value))
        return [json.loads(self.get(f"{key}/{index}")) for index in range(self.count)]


def _is_of_loss(error):
    """Whether a library's error is that of a connection to a process that is lost."""
    library = type(error).__module__.partition(".")[0]
    signs = {"tensorflow": ("UnavailableError", "AbortedError"), "jax": ("Gloo", "UNAVAILABLE"), "jaxlib": ("Gloo",)}
    return any(sign in f"{type(error).__name__}: {error}" for sign in signs.get(library, ()))


def together(stage: Callable) -> Callable:
    """Marks a stage in which all processes of a run take part; of any other stage the chief takes care alone."""
    vars(stage)["is_together"] = True
    return stage


def is_together(stage: Callable) -> bool:
    """Whether all processes of a run take part in a stage.

    >>> is_together(print)
    False
    """
    return getattr(stage, "is_together", False)


def part_of(column, part: int, parts: int):
    """The rows of a column [N, ...] that belong to one of so many equal parts.

    >>> part_of(np.arange(6), 1, 3).tolist()
    [2, 3]
    """
    size = len(column) // parts
    return column[part * size : (part + 1) * size]
