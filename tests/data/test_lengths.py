import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.lengths import TokenCounter, WordCounter


@pytest.fixture
def folder(tmp_path):
    """A tokenizer that knows four words and closes every text with </s>."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel({"<unk>": 0, "</s>": 1, "a": 2, "b": 3, "-": 4}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>").save_pretrained(
        tmp_path
    )
    return str(tmp_path)


def test_tokens_are_counted_without_special_ones(folder):
    count = TokenCounter(folder)
    assert count(["a b", "a-b", ""]) == [2, 3, 1]
    assert count([]) == []
    assert (count.unit, WordCounter.unit) == ("tokens", "words")


def test_a_tokenizer_that_is_not_there_is_one_line(tmp_path):
    for name in (str(tmp_path), "no-such-owner/no-such-tokenizer"):
        with pytest.raises(UserError, match="no tokenizer can be loaded from") as caught:
            TokenCounter(name)
        assert "\n" not in str(caught.value)
