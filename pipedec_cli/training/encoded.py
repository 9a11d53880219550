"""An example of a training in token ids."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Encoded:
    """The source with its <eos>, and each subsequence without <bos> and <eos>.

    Where questions are learnt, the source is the prompt, and the texts are the answers
    with the tokens that end them.
    """

    source: list[int]
    texts: tuple[list[int], ...]
    cut: bool = False  # whether the source was too long and was cut
    #: What the rows of questions begin with, one for each text; else ().
    known: tuple[list[int], ...] = ()
    #: The last so many of these rows have no value.
    lacking: int = 0
    #: Values that are not learnt, because a row could not write them.
    unwritable: int = 0

    @property
    def target_length(self) -> int:
        """The tokens of its rows, with <bos> and <eos>."""
        texts = sum(len(text) + 2 for text in self.texts)
        return texts + sum(map(len, self.known))
