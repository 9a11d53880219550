"""The site: `sphinx-build -W docs build/site`. Its page of commands is made from the settings."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import reference  # noqa: E402 - beside this file

project = "pipedec"
author = "The pipedec founders"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "pipedec"
html_extra_path = ["llms.txt"]
exclude_patterns = ["examples"]
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]
#: Code blocks without a language are commands and what they print.
highlight_language = "none"

(DOCS / reference.PAGE).write_text(reference.commands_page(), encoding="utf-8")
