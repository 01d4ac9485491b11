# SPDX-License-Identifier: Apache-2.0
"""Hooks that exist only while steps are collected."""
from typing import Any, Callable, Iterable, NamedTuple

from gradmon import _gradmon


class Attachment(NamedTuple):
    """One way to read some kinds of rows."""

    kinds: str  # for the warning: "grad_unreduced"
    attach: Callable[[], Iterable[Any]]  # puts the hooks on; yields objects with remove()


class CollectingHooks:
    """Puts hooks on an engine's objects before a collected step, and removes them before other steps.
    Training thread.

    If attach() fails (the framework has renamed its parts), these kinds have no rows from then on, `reasons`
    has the reason, and training is untouched.
    """

    def __init__(self, attachments: "list[Attachment]") -> None:
        self._attachments = attachments
        self._attached: "list[Any]" = []
        self.reasons: "list[str]" = []

    def set(self, wanted: bool) -> None:
        if wanted and not self._attached:
            self._attached = [hook for one in list(self._attachments) for hook in self._try(one)]
        elif not wanted:
            self.remove()

    def remove(self) -> None:
        attached, self._attached = self._attached, []
        for hook in reversed(attached):
            hook.remove()

    def forget(self) -> None:
        """Removes the hooks for good, and releases the engine."""
        self.remove()
        self._attachments = []

    def _try(self, one: Attachment) -> "list[Any]":
        hooks: "list[Any]" = []
        try:
            for hook in one.attach():
                hooks.append(hook)
        except Exception as error:
            for hook in hooks:
                hook.remove()
            self._attachments.remove(one)
            self.reasons.append(f"no rows in {one.kinds}: {type(error).__name__}: {error}")
            _gradmon.warn_once(self.reasons[-1])
            return []
        return hooks
