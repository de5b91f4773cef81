"""The figures for Prometheus, and that all that programs may read is documented."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from memops import check, exposition, records, survey
from memops.settings import Store
from memops.store import CLASSES
from prometheus_text import parse
from unit.survey_case import DAY, NIGHT, NOW, SUNDAY, THERE, look, systemd, whole

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs' scripts are not on the machine that runs the tests."""
    monkeypatch.setattr(survey, "SCRIPTS", dict.fromkeys(survey.ORDER, "/"))


def full() -> dict[str, dict[str, float]]:
    counts = {"rows": 5, "live": 4, "gap": 1, "dead": 0, "doubtful": 1, "violations": 0, "journal_mode": "wal"}
    record = {"job": "prune", "end": survey.iso(NIGHT), "result": "done", "message": "hunter2", "counts": counts}
    files = records.Files([record], whole())
    text = exposition.text([look(files, offsite=THERE)])
    assert "hunter2" not in text
    return parse(text)


def test_the_figures_are_whole_and_documented() -> None:
    found = full()
    assert found.keys() == exposition.METRICS.keys()
    assert found["memops_up"] == {"": 1}
    assert found["memops_set_timestamp_seconds"] == {'store="default"': NIGHT + 60}
    assert found["memops_rows"]['store="default",state="live"'] == 4
    assert found["memops_set_parts"] == {'store="default"': 3}
    assert found["memops_drill_timestamp_seconds"] == {'store="default"': SUNDAY}
    assert found["memops_offsite_timestamp_seconds"] == {'store="default"': NIGHT}
    assert found["memops_last_run_max_age_seconds"]['store="default",job="drill"'] == 14 * DAY
    document = (ROOT / "docs/metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(memops_\w+)` \|([^|]*)\|", document, re.MULTILINE))
    assert rows.keys() == found.keys()
    for name, samples in found.items():
        labels = {re.sub(r'="[^"]*"', "", each) for each in samples}
        assert ",".join(re.findall(r"`(\w+)`", rows[name])) in labels, name


def test_figures_when_nothing_could_be_asked() -> None:
    assert parse(exposition.text([], up=False)) == {"memops_up": {"": 0}}


def test_the_metrics_job_says_when_systemd_does_not_answer(lib: Path, tmp_path: Path) -> None:
    file = tmp_path / "memops.prom"
    file.write_text("old")
    file.chmod(0o600)
    # Without /run no systemd is found, whether or not one runs this machine.
    away = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh")
    ran = subprocess.run(
        [*away, "/usr/bin/python3", "-I", lib / "metrics.py", "--file", file, "default"], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "systemd did not answer" in ran.stderr
    assert parse(file.read_text()) == {"memops_up": {"": 0}}
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["memops.prom"]


def test_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    store, state = look()
    text = exposition.text([({**store, "name": odd}, state)])
    assert 'store="a\\"b\\\\c\\nd"' in text
    parse(text)


# What the keys of status --json mean is promised in docs/status.md


def keys(value: object, prefix: str = "") -> set[str]:
    if isinstance(value, dict):
        return {f"{prefix}.{k}".lstrip(".") for k in value} | {
            deeper for k, v in value.items() for deeper in keys(v, f"{prefix}.{k}")
        }
    if isinstance(value, list):
        return {deeper for v in value for deeper in keys(v, f"{prefix}[]")}
    return set()


def test_every_key_of_status_is_documented_and_no_other(monkeypatch) -> None:
    from memops import host, status
    from memops import systemd as asking

    counts = {
        "expired": 0, "superseded": 0, "chain": 0, "refused": 0, "doubtful": 0, "rows": 5, "live": 4, "gap": 1,
        "dead": 0, "violations": 0, "journal_mode": "wal", "bytes": 1, "wal_bytes": 1, "wal_waiting": 0,
    }  # fmt: skip
    record = {"job": "prune", "end": survey.iso(NIGHT), "result": "done", "message": "", "counts": counts}
    figures = {"waiting": 1, **{f"source_{name}": 1 for name in CLASSES}}
    digest = {**record, "job": "digest", "counts": figures}
    run = systemd(prune={"ActiveState": "failed"}, offsite=THERE)
    monkeypatch.setattr(host, "run", lambda *words, **_: host.Ran(0, run(*words), ""))
    monkeypatch.setattr(records, "read_files", lambda *_: records.Files([record, digest], whole()))
    monkeypatch.setattr(asking, "journal", lambda *_: [])
    data = json.loads(json.dumps(status.gather([Store()], now=NOW)))
    real = {re.sub(r"journal\..*", "journal.UNIT", re.sub(r"sources\..*", "sources.CLASS", key)) for key in keys(data)}
    document = (ROOT / "docs/status.md").read_text().split("## memops status")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `([^`]+)` \|", document, re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert set(documented) == real


def test_every_label_of_the_performance_data_is_documented() -> None:
    counts = {"rows": 5, "live": 4, "gap": 1, "dead": 0, "doubtful": 1}
    record = {"job": "prune", "end": survey.iso(NIGHT), "result": "done", "message": "", "counts": counts}
    data = check.line([look(records.Files([record], whole()), offsite=THERE)]).split(" | ")[1]
    document = (ROOT / "docs/status.md").read_text().split("## memops check")[1]
    documented = re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE)
    assert sorted(documented) == sorted(part.split("=")[0] for part in data.split(" "))
