"""What `make docs` needs beside MkDocs; `mkdocs.yml` names the files.

hooks.py         pages of the repository's root, links between them, and the gallery become part of the site
stories.py       examples/gallery/*.py -> pages with pictures, and notebooks
trees.py         decision trees -> SVG
docstrings.py    the house's docstrings -> Markdown, for the pages of the API
blocks.py        code blocks of pages: found, run, and their output compared
"""
