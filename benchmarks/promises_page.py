"""What promises cost, in docs/research/promises.md.

The figures are those of `benchmarks.chest`, `benchmarks.scans` and `benchmarks.promises`.
"""

from __future__ import annotations

from typing import Any

from .chest import LEVELS, SHARES, STUDIES, Row, Study, summary
from .pages import result, where
from .scans import summary as by_cap

PAGE = "docs/research/promises.md"
OURS = ("ours", "ours, labels")
OTHERS = ("per promise", "per promise, labels", "unweighted", "unweighted, labels")


def rows_of(found: dict[str, Any], name: str, study: Study) -> list[Row]:
    key = {"study": name, **study.key}
    return [row for row in found["rows"] if key.items() <= row.items()]


def table(told: list[Row]) -> list[str]:
    """Risks and lengths of each way; a risk above its level is bold."""
    heads = " | ".join(f"{name} {level:.0%}" for name, level in LEVELS.items())
    lines = [
        f"| way | draws | all kept | so judged | {heads} | length |",
        "|---" * (5 + len(LEVELS)) + "|",
    ]
    for x in told:
        if not x["certified"]:
            lines.append(f"| {x['way']} | {x['draws']} | cannot be certified |" + " |" * (2 + len(LEVELS)))
            continue
        risks = [f"**{x['risks'][k]:.1%}**" if x["risks"][k] > v else f"{x['risks'][k]:.1%}" for k, v in LEVELS.items()]
        draws = f"{x['draws']}" if x["certified"] == x["draws"] else f"{x['certified']} of {x['draws']}"
        kept = f"{x['kept']} | {x['kept by others']}"
        lines.append(f"| {x['way']} | {draws} | {kept} | {' | '.join(risks)} | {x['lengths']['all']:.4f} |")
    lines += ["", f"| mean length in | {' | '.join(SHARES)} |", "|---" * (1 + len(SHARES)) + "|"]
    for x in told:
        if x["certified"]:
            lengths = [f"{x['lengths'][name]:.4f}" for name in SHARES]
            lines.append(f"| {x['way']} | {' | '.join(lengths)} |")
    return lines


def against(rows: list[Row]) -> str:
    """How much shorter ours is than each other way, over the draws that both have."""
    length = {(row["way"], row["draw"]): row["lengths"]["all"] for row in rows if "lengths" in row}
    parts = []
    for other in OTHERS:
        gains = []
        for way in OURS:
            both = [draw for (name, draw) in length if name == other and (way, draw) in length]
            if both:
                gain = sum(length[way, d] for d in both) / sum(length[other, d] for d in both) - 1
                gains.append(f"{gain:+.1%} ({way}, {len(both)} draws)")
        if gains:
            parts.append(f"against *{other}* {' and '.join(gains)}")
    return "Length of ours " + "; ".join(parts) + "." if parts else ""


def more(found: dict[str, Any]) -> list[str]:
    """What more slices and a cap give."""
    lines = ["| slices that calibrate | cap | way | draws | all kept | all | trachea | length |", "|---" * 8 + "|"]
    for study in STUDIES["more"]:
        for x in summary(rows_of(found, "more", study)):
            if x["certified"]:
                lines.append(
                    f"| {study.count} | {study.cap or 'none'} | {x['way']} | {x['certified']} | {x['kept']} "
                    f"| {x['risks']['all']:.1%} | {x['risks']['trachea']:.1%} | {x['lengths']['all']:.4f} |"
                )
    return lines


def chest(found: dict[str, Any]) -> list[str]:
    having = ", ".join(f"{name} in {count}" for name, count in found["having"].items() if name in ("trachea", "heart"))
    by_slice = rows_of(found, "slices", STUDIES["slices"][0])
    by_patient = rows_of(found, "patients", STUDIES["patients"][0])
    count, fitting = STUDIES["slices"][0].count, STUDIES["slices"][0].fitting
    lines = [
        f"### Chest CT\n{found['slices']:,} slices of {found['patients']} patients that trained no network "
        f"({having}), {' x '.join(map(str, found['size']))}; bands of a network of ours, labels of a small one "
        f"(`python -m benchmarks.chest`; {where(found)}). {count} slices calibrate in a draw, {fitting} of them fit; "
        "delta 0.1. The source of the certifying slices is known whole here, all slices that do not fit: *all kept* "
        "counts draws in which no true risk is above its level, and risks are means over draws, bold above their "
        f"level. *So judged* counts draws by the {found['slices'] - count} other slices alone, as a user would: few "
        "slices err, and easy slices that certify leave hard ones.\n",
        *table(summary(by_slice)),
        "",
        against(by_slice),
    ]
    if by_patient:
        study = STUDIES["patients"][0]
        lines += [
            f"\n**By patient**, a slice counting for at most {study.cap}: {study.count} of the {found['patients']} "
            f"patients calibrate, {study.fitting} of them fit, the {found['patients'] - study.count} others judge, "
            "which says little.\n",
            *table(summary(by_patient)),
            "",
            against(by_patient),
        ]
    made = more(found)
    if len(made) > 2:
        lines += [
            "\n**More slices, and a cap**: what is left above the plain 5% is mostly slack of rare regions.\n",
            *made,
        ]
    return lines


def scans(found: dict[str, Any]) -> list[str]:
    lines = [
        f"### A cap where scans are few\nAbdominal CT by scan: {found['calibrating']} of {found['scans']} scans "
        f"calibrate at {found['level']:.0%}, the others judge (`python -m benchmarks.scans`; {where(found)}).\n",
        "| cap | draws | length | against none | risk, as promised | mean share missed | kept |",
        "|---" * 7 + "|",
    ]
    for x in by_cap(found["rows"]):
        gain = f"{x['against none']:+.1%}" if x["cap"] else ""
        lines.append(
            f"| {x['cap'] or 'none'} | {x['draws']} | {x['length']:.4f} | {gain} | {x['risk']:.1%} "
            f"| {x['risk without cap']:.1%} | {x['kept']} |"
        )
    return lines


def cost(found: dict[str, Any]) -> list[str]:
    lines = [
        f"### What they cost to calibrate\nEight promises beside one, {found['rows'][0]['images']} images of "
        f"{found['rows'][0]['size']} x {found['rows'][0]['size']}, time that was computed "
        f"(`python -m benchmarks promises`; {where(found)}).\n",
        "| method | promises | CPU seconds | times one | peak memory beyond the images |",
        "|---" * 5 + "|",
    ]
    for x in found["rows"]:
        lines.append(
            f"| {x['what']} | {x['promises']} | {x['CPU seconds']:.2f} | {x['times one']:.1f} "
            f"| {x['peak MiB']:.0f} MiB |"
        )
    return lines


def text() -> str:
    parts = [chest(result("chest")), scans(result("scans")), cost(result("promises"))]
    return "\n\n".join("\n".join(part) for part in parts)
