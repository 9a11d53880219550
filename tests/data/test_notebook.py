"""What a notebook shows of results."""

import pipedec_cli as pipedec


def test_a_generated_text_shows_its_subsequences_as_text():
    made = pipedec.Generated(
        text="", segments=("a <b>", "</li>&"), steps=3, tokens=1234, truncated="<i>"
    )
    listed = '<li dir="auto" style="white-space: pre-wrap">{}</li>'.format
    told = "<p>1,234 tokens in 3 decoder calls, cut short by &lt;i&gt;</p>"
    assert (
        made._repr_html_()
        == f"<ol>{listed('a &lt;b&gt;')}{listed('&lt;/li&gt;&amp;')}</ol>{told}"
    )
    pair = pipedec.Generated(
        text="{}", segments=("3",), fields={"a<b": None, "stars: all": 3}
    )._repr_html_()
    assert pair.startswith(f"<ol>{listed('stars:: all: 3')}</ol>"), (
        "a value without its key says nothing"
    )
    assert listed("whole") in pipedec.Generated(text="whole", segments=())._repr_html_()
