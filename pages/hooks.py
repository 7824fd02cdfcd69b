"""MkDocs calls these: pages of the repository's root, links between them, and the gallery become part of the site."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from pages.stories import GROUPS, Story, as_page, cards, load_or_run, stories_in
from pages.trees import with_trees

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
GALLERY = ROOT / "examples" / "gallery"
_FENCE = re.compile(r"^\s*(```|~~~)")
_BLOCK = re.compile(r"^(?:[-*] |\d+\. |\|)")
_BEFORE = re.compile(r"<!-- before:(.*?)-->\n?", re.DOTALL)
_UNSEEN = re.compile(r"<!-- (?:unseen|not run)\b.*?-->\n?", re.DOTALL)
_BY_FILE = re.compile(r"\[(?:[\w./]+/)?\w+\.md\]\(([\w./]+\.md)(#[\w-]+)?\)")
_STAND_INS = "To run this page as it is: stand-ins for your data"
_MORE = "To run what follows"


def on_config(config: Any) -> Any:
    """List the stories of the gallery, in their groups."""
    title = {story.name: story.title for story in stories_in(GALLERY)}
    for section in config.nav:
        if "Gallery" in section:
            section["Gallery"] += [
                {group: [{title[name]: f"gallery/{name}.md"} for name in names]} for group, names in GROUPS.items()
            ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add pages that lie outside docs/, and those of the gallery with their pictures and notebooks."""
    for source, name in FROM_ROOT.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    runs = [load_or_run(story) for story in stories_in(GALLERY)]
    for made in runs:
        files.append(File.generated(config, f"gallery/{made.story.name}.md", content=as_page(made)))
        for name, content in made.files.items():
            files.append(File.generated(config, f"gallery/{name}", content=content))
    files.append(File.generated(config, "gallery/index.md", content=cards(runs)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Markdown as MkDocs reads it: links within the site, what blocks need folded, lists and tables as blocks."""
    uri = page.file.src_uri
    return with_blocks(with_trees(folded(titled(linked(markdown, uri), uri, titles(config.nav)))))


def folded(markdown: str) -> str:
    """What code needs and is not the page's matter, folded: a reader who wants to run the page finds it."""
    headings = [_STAND_INS]

    def block(match: re.Match[str]) -> str:
        code = "\n".join(f"    {line}".rstrip() for line in match[1].strip().split("\n"))
        heading = headings.pop() if headings else _MORE
        return f'\n??? example "{heading}"\n\n    ```python\n{code}\n    ```\n\n'

    return _BEFORE.sub(block, _UNSEEN.sub("", markdown))


def titles(nav: Any) -> dict[str, str]:
    """Titles of pages, by file."""
    by_file: dict[str, str] = {}
    for entry in nav:
        for title, what in entry.items() if isinstance(entry, dict) else ():
            by_file |= {what: title} if isinstance(what, str) else titles(what)
    return by_file


def titled(markdown: str, uri: str, known: dict[str, str]) -> str:
    """Links that are called by a file, which is right in the repository, called by the page."""

    def link(match: re.Match[str]) -> str:
        title = known.get(posixpath.normpath(posixpath.join(posixpath.dirname(uri), match[1])))
        return f"[{title}]({match[1]}{match[2] or ''})" if title else match[0]

    return _BY_FILE.sub(link, markdown)


def linked(markdown: str, uri: str) -> str:
    """Links of the repository as links of the site."""
    up = "../" * uri.count("/")
    for source, name in FROM_ROOT.items():
        markdown = re.sub(rf"\]\((?:\.\./)*{source}(?=[)#])", f"]({up}{name}", markdown)
    if uri in FROM_ROOT.values():
        markdown = markdown.replace("](docs/", "](").replace("](README.md", "](index.md")
    return markdown


def with_blocks(markdown: str) -> str:
    """An empty line before every list and table that follows a line of text, outside code, and after code."""
    out: list[str] = []
    code = False
    for line in markdown.split("\n"):
        if _FENCE.match(line):
            code = not code
        before = out[-1] if out else ""
        if (
            not code
            and _BLOCK.match(line)
            and before.strip()
            and not _BLOCK.match(before)
            and not before.startswith(" ")
        ):
            out.append("")
        out += [line, ""] if _FENCE.match(line) and not code else [line]
    return "\n".join(out)


def on_post_page(output: str, **_: Any) -> str:
    """A page whose search has a name, for screen readers."""
    return output.replace('<div class="md-search" ', '<div class="md-search" aria-label="Search" ')


__all__ = ["Story", "on_config", "on_files", "on_page_markdown", "on_post_page"]
