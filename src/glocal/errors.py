"""Every deliberate error: what was asked, what was found, what is allowed, what to do."""


class GlocalError(Exception):
    """Base of all errors that glocal raises on purpose; one line per question a user has."""

    def __init__(self, problem: str, *, asked: object = None, found: object = None, allowed: object = None, do: str = ""):
        self.problem = problem
        self.details = {"asked": asked, "found": found, "allowed": allowed, "do": do}
        lines = [problem]
        for label, value in (("asked", asked), ("found", found), ("allowed", allowed), ("do", do or None)):
            if value is not None:
                lines.append(f"  {label}: {value}")
        super().__init__("\n".join(lines))

    def at(self, place: str) -> "GlocalError":
        """The same error, saying where it happened."""
        return type(self)(f"{place}: {self.problem}", **self.details)


class TextError(GlocalError):
    """The text, pair or ids cannot be analysed as they are."""


class TextTooLongError(TextError):
    """The text has more tokens than the model has positions."""


class ModelError(GlocalError):
    """The model or tokenizer cannot be loaded or does not fit."""


class UnseenLayersError(ModelError):
    """The instrument does not see the attention of every layer of this family."""


class FreezeError(ModelError):
    """A frozen pass would change the outputs, so nothing was computed."""


class ChoiceError(GlocalError):
    """An argument is not one of the allowed values."""


class MemoryBudgetError(GlocalError):
    """Even the smallest chunk needs more memory than was allowed."""


class StoryError(GlocalError):
    """A Story, or a file that should hold one, does not follow the schema."""


class StudyError(GlocalError):
    """A study cannot be written, continued or read."""


class GlocalWarning(UserWarning):
    """Something a user should know about a result that is nevertheless right."""
