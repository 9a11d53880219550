"""What a notebook shows of results."""

import pytest

import pipedec_cli as pipedec
from pipedec_cli.data.writing import write_json, write_text


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


def test_a_saved_report_shows_its_page_in_a_frame_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("PIPEDEC_WORKSPACE", str(tmp_path))
    write_json(
        tmp_path / "report/report.json", {"advice": {"text": "Take it."}, "entries": []}
    )
    write_text(tmp_path / "report/report.html", "<p>\"a\" & 'b'</p>")
    saved = pipedec.read_report()
    assert (saved.advice, saved.content["entries"], saved.folder) == (
        "Take it.",
        [],
        tmp_path / "report",
    )
    assert saved._repr_html_().startswith("<iframe")
    assert (
        'srcdoc="&lt;p&gt;&#34;a&#34; &amp; &#39;b&#39;&lt;/p&gt;"'
        in saved._repr_html_()
    )
    assert 'sandbox="allow-scripts"' in saved._repr_html_()
    assert "Take it." in repr(saved) and "<p>" not in repr(saved)


@pytest.mark.parametrize(
    ("content", "why"),
    [({}, "advice"), ({"advice": 3}, "not what `pipedec report` writes")],
)
def test_what_is_no_report_is_refused(tmp_path, content, why):
    with pytest.raises(pipedec.UserError, match=r"report\.json: no such file"):
        pipedec.read_report(tmp_path)
    write_json(tmp_path / "report.json", content)
    with pytest.raises(pipedec.UserError, match=why):
        pipedec.read_report(str(tmp_path))
    write_json(tmp_path / "report.json", {"advice": {"text": "Take it."}})
    with pytest.raises(pipedec.UserError, match=r"report\.html: no such file"):
        pipedec.read_report(tmp_path)
