from typer.testing import CliRunner

from pixelbounds.cli import app
from pixelbounds.demo import RISK_LEVEL, compare


def test_every_method_controls_the_risk_and_the_default_is_shortest():
    rows = compare(n=300, size=32, held_out=300)
    assert all(row.calibration.bound < RISK_LEVEL for row in rows)
    assert all(row.evaluation.risk <= RISK_LEVEL * 1.05 for row in rows)
    paper = next(row for row in rows if "the paper" in row.name)
    assert rows[-1].evaluation.mean_length <= 1.015 * min(row.evaluation.mean_length for row in rows)
    assert rows[-1].evaluation.mean_length < 0.92 * paper.evaluation.mean_length


def test_demo_command_prints_the_table_and_the_guarantee():
    result = CliRunner().invoke(app, ["demo", "--images", "120", "--size", "24"])
    assert result.exit_code == 0, result.output
    assert "frontier, learned" in result.output
    assert "With probability at least 90%" in result.output.replace("\n", " ")
