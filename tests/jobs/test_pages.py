"""A report as it was left, and how a notebook shows it."""

import pytest

import pipedec_cli as pipedec
from pipedec_cli.data.writing import write_json, write_text


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
        'srcdoc="&lt;p&gt;&quot;a&quot; &amp; &#x27;b&#x27;&lt;/p&gt;"'
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
