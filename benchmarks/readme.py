"""The results of README.md: the first table of docs/results.md."""

from .overview import lengths

PAGE = "README.md"


def text() -> str:
    lines = [
        "## Results",
        "Mean interval length at the same guarantee (delta = 0.1), over 20 random splits; networks are ours. With",
        "the same bound for both, the path alone is 1% to 8% shorter ([all results](docs/results.md)).",
        "",
        *lengths("docs/"),
    ]
    return "\n".join(lines)
