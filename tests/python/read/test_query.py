# SPDX-License-Identifier: Apache-2.0
"""gradmonctl query: SQL over the databases of all ranks."""
import math
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from gradmon_read import rank_database
from gradmon_read.rank_database import RankDatabase, RankDatabaseError
from reading import GRADMONCTL, Commands, RankWriter, change, corrupted, golden_difference

TARGETS = ["layers.3.fc.weight", "layers.30.fc.weight", "head.weight"]
TITLES = "rank,step,metric,target,vpp_stage,micro_step,op,value\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """25 ranks, steps 498 to 502."""
    for rank in range(25):
        writer = RankWriter(tmp_path, rank)
        for step in range(498, 503):
            writer.write(step, TARGETS)
        writer.close()
    return tmp_path


def csv_of(run: Commands, sql: str, place: Path) -> str:
    answer = run("query", sql, place, "--format", "csv")
    assert (answer.code, answer.err) == (0, "")
    return answer.out


def test_a_query_sees_the_rows_of_all_ranks_and_steps(run: Commands, job: Path) -> None:
    sql = (
        "SELECT count(*) AS n, count(DISTINCT rank) AS ranks, min(step) AS first, max(step) AS last, "
        "round(sum(value), 3) AS sum FROM v_metrics"
    )
    assert csv_of(run, sql, job) == "n,ranks,first,last,sum\n750,25,498,502,187920.0\n"
    sql = (
        "SELECT rank, value FROM v_metrics WHERE step = 500 AND op = 'norm' AND target = 'head.weight' "
        "AND rank >= 23"
    )
    assert csv_of(run, sql, job) == "rank,value\n23,500.23\n24,500.24\n"


def test_options_select_the_rows_that_the_same_sql_selects(run: Commands, job: Path) -> None:
    filters = ["--metric", "grad_reduced", "--target", "layers.3.*", "--op", "norm", "--steps", "499:500"]
    answer = run("query", *filters, "--rank", "7", "--format", "csv", job)
    assert answer.code == 0
    assert answer.out == (
        f"{TITLES}7,499,grad_reduced,layers.3.fc.weight,0,0,norm,499.07\n"
        "7,500,grad_reduced,layers.3.fc.weight,0,0,norm,500.07\n"
    )
    assert run("query", "--metric", "actv", "--format", "csv", job).out == TITLES


def test_brackets_in_a_pattern_stand_for_themselves(run: Commands, tmp_path: Path) -> None:
    RankWriter(tmp_path, 0).write(1, ["a[12].w", "a1.w", "a]12].w", "b[1].w"])
    options = ["--op", "max", "--format", "csv", str(tmp_path)]
    rows = [f"0,1,grad_reduced,{name},0,0,max,1.0\n" for name in ("a[12].w", "b[1].w")]
    assert run("query", "--target", "a[12].*", *options).out == TITLES + rows[0]
    assert run("query", "--target", "?[*", *options).out == TITLES + rows[0] + rows[1]


@pytest.mark.parametrize(
    "one, other, count",
    [
        ("step <= 498", "step >= 502", 300),
        ("step >= 499 AND step < 501", "step = 502", 450),
        ("op = 'norm' AND step < 500", "op = 'max' AND step >= 500", 375),
        ("op = 'norm' AND step = 499", "step = 498", 225),
        ("rank = 3", "rank = 24", 60),
        ("target GLOB 'layers.3.*'", "target = 'head.weight'", 500),
    ],
)
def test_conditions_find_every_row_once(run: Commands, job: Path, one: str, other: str, count: int) -> None:
    select = "SELECT 1 FROM v_metrics WHERE"
    for source in (f"({select} {one} UNION ALL {select} {other})", f"v_metrics WHERE ({one}) OR ({other})"):
        assert csv_of(run, f"SELECT count(*) AS n FROM {source}", job) == f"n\n{count}\n"


def test_only_what_the_filter_asks_for_is_read(run: Commands, job: Path) -> None:
    broken = job / "Nov24_08-30-12-rank3-8c0ffee0" / "monitor_metrics.db"
    change(broken, "ALTER TABLE metric_4_step_0_499 RENAME COLUMN max TO least")
    assert csv_of(run, "SELECT sum(value) AS s FROM v_metrics WHERE rank = 4", job) != ""
    found = csv_of(run, "SELECT count(*) AS n FROM v_metrics WHERE rank = 3 AND step > 500", job)
    assert found == "n\n12\n"  # the other partition
    found = csv_of(run, "SELECT count(*) AS n FROM v_metrics WHERE rank = 3 AND op = 'norm'", job)
    assert found == "n\n15\n"
    answer = run("query", "SELECT count(*) FROM v_metrics WHERE rank = 3", job)
    assert answer.code == 7
    assert answer.err.startswith(f"gradmonctl: {broken}: no such column: ")


def test_each_format_prints_nan_infinity_and_texts(run: Commands, tmp_path: Path) -> None:
    odd = 'layers.3.say "x",\n'
    RankWriter(tmp_path, 0).write(1, [odd, "layers.3.b"], {odd: [math.nan, -math.inf], "layers.3.b": [1, 1]})
    for form, name in (("table", "query_table.txt"), ("csv", "query_csv.txt"), ("json", "query_json.txt")):
        answer = run("query", "--metric", "grad_reduced", "--format", form, tmp_path)
        assert golden_difference(name, answer.out) == ""
    assert (
        csv_of(run, "SELECT op, value FROM v_metrics WHERE isnan(value)", tmp_path) == "op,value\nnorm,nan\n"
    )
    assert run("query", "--metric", "actv", "--format", "json", tmp_path).out == "[]\n"
    sql = "SELECT NULL AS a, true AS b, 0.5 AS c, 'é' AS d, -0.0::DOUBLE AS e, 2.0**70 AS f"
    row = '{"a": null, "b": true, "c": 0.5, "d": "é", "e": -0.0, "f": 1.1805916207174113e+21}'
    assert run("query", sql, "--format", "json", tmp_path).out == f"[\n {row}\n]\n"


def test_v_nonfinite_and_v_layer_step_cover_all_ranks(run: Commands, tmp_path: Path) -> None:
    for rank in (0, 1):
        values = {"layers.3.a": [math.nan, 1.0]}
        RankWriter(tmp_path, rank).write(3, ["layers.3.a", "layers.4.a", "layers.4.b", "head"], values)
    found = csv_of(run, "SELECT rank, target, op, value FROM v_nonfinite ORDER BY rank", tmp_path)
    assert found == "rank,target,op,value\n0,layers.3.a,norm,nan\n1,layers.3.a,norm,nan\n"
    sql = (
        "SELECT rank, layer, op, targets, nan_targets, round(value, 3) AS value FROM v_layer_step "
        "WHERE op = 'norm' AND rank = 0"
    )
    assert csv_of(run, sql, tmp_path) == (
        "rank,layer,op,targets,nan_targets,value\n0,layers.3,norm,1,1,\n0,layers.4,norm,2,0,4.243\n"
    )
    found = csv_of(run, "SELECT rank, run_id FROM v_files", tmp_path)
    assert found == "rank,run_id\n0,8c0ffee0\n1,8c0ffee0\n"


def test_rows_are_read_in_pages(run: Commands, tmp_path: Path) -> None:
    writer = RankWriter(tmp_path, 0)
    for step in (7, 8, 9, 1000):
        writer.write(step, [f"t{i}" for i in range(1500)])
    sql = "SELECT count(*) AS n, count(DISTINCT step || target) AS d FROM v_metrics WHERE op = 'norm'"
    assert csv_of(run, sql, tmp_path) == "n,d\n6000,6000\n"
    sql = "SELECT count(*) AS n, min(step) AS first FROM v_metrics WHERE step > 7 AND step < 1000"
    assert csv_of(run, sql, tmp_path) == "n,first\n6000,8\n"
    sql = "SELECT count(*) AS n FROM v_metrics WHERE target = 'T5' COLLATE NOCASE"
    assert csv_of(run, sql, tmp_path) == "n\n8\n"


def test_a_wrong_statement_is_an_error_that_names_the_tables(run: Commands, job: Path) -> None:
    answer = run("query", "SELECT * FROM v_metric", job)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(
        "gradmonctl: Catalog Error: Table with name v_metric does not exist; the tables "
    )


@pytest.mark.parametrize(
    "sql",
    [
        *("DELETE FROM v_metrics", "CREATE TABLE t (a INT)", "ATTACH '{}' AS x", "SELECT 1; SELECT 2", " "),
        *("-- nothing", "COPY (SELECT 1) TO '{}'", "SELECT * FROM '/etc/passwd'", "SET threads = 1"),
        *(
            "SELECT * FROM read_text('/etc/passwd')",
            "INSTALL httpfs",
            "PRAGMA enable_profiling",
            "SELECT 1e999 +",
        ),
    ],
)
def test_a_statement_must_read_and_reaches_no_other_file(run: Commands, tmp_path: Path, sql: str) -> None:
    RankWriter(tmp_path / "job", 0).write(1, TARGETS)
    other = tmp_path / "other"
    assert run("query", sql.format(other), tmp_path / "job").code == 1
    assert not other.exists()


def test_a_file_that_is_no_database_is_named_and_the_others_are_read(run: Commands, job: Path) -> None:
    first, second, third = (job / f"Nov24_08-30-12-rank{i}-8c0ffee0" / "monitor_metrics.db" for i in range(3))
    first.write_text("x" * 5000)
    second.write_text("")  # its rank is just making it
    third.unlink()
    change(third, "CREATE TABLE a (b); PRAGMA application_id = 1735552366; PRAGMA user_version = 9")
    answer = run("query", "SELECT count(DISTINCT rank) AS ranks FROM v_metrics", "--format", "csv", job)
    assert (answer.code, answer.out) == (7, "ranks\n22\n")
    assert answer.err == (
        f"gradmonctl: {first}: file is not a database; expected a database that gradmon writes\n"
        f"gradmonctl: {third}: found another database; expected one of gradmon's, schema version 1\n"
    )
    assert run("query", "SELECT count(*) FROM v_metrics", first).code == 1


def test_rows_are_read_while_they_are_written(run: Commands, tmp_path: Path) -> None:
    place = Path("/dev/shm") if os.path.isdir("/dev/shm") else tmp_path
    place = place / f"gradmon_{os.getpid()}"
    writer = RankWriter(place, 0)
    targets = [f"t{i}" for i in range(300)]
    writer.write(0, targets)
    failures: "list[str]" = []

    def write() -> None:
        try:
            for step in range(1, 40):
                writer.write(step, targets)
        except sqlite3.Error as error:
            failures.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    sql = "SELECT count(*) AS bad FROM v_metrics WHERE op = 'norm' AND value <> step"
    try:
        assert csv_of(run, sql, place) == "bad\n0\n"
        while thread.is_alive():
            assert csv_of(run, sql, place) == "bad\n0\n"
    finally:
        thread.join()
        writer.close()
        shutil.rmtree(place)
    assert failures == []


def test_a_query_changes_nothing_in_a_run_directory(run: Commands, job: Path) -> None:
    (first, *_) = sorted(job.iterdir())
    before = (first / "monitor_metrics.db").read_bytes()
    csv_of(run, "SELECT count(*) FROM v_layer_step", job)
    assert os.listdir(first) == ["monitor_metrics.db"]
    assert (first / "monitor_metrics.db").read_bytes() == before


def test_an_unfinished_transaction_of_a_killed_rank_is_rolled_back(run: Commands, tmp_path: Path) -> None:
    writer = RankWriter(tmp_path / "live", 0, journal="truncate")
    for step in range(10):
        writer.write(step, [f"t{i}" for i in range(1000)])
    killed = sqlite3.connect(writer.file, isolation_level=None)
    # A cache of a few pages writes into the file before the transaction ends.
    for statement in ("PRAGMA journal_mode = TRUNCATE", "PRAGMA cache_size = 1", "BEGIN IMMEDIATE"):
        killed.execute(statement)
    killed.execute("UPDATE metric_4_step_0_499 SET norm = -1")
    shutil.copytree(tmp_path / "live", tmp_path / "left")
    found = csv_of(run, "SELECT count(*) AS n, min(value) AS least FROM v_metrics", tmp_path / "left")
    assert found == "n,least\n20000,0.0\n"


@pytest.mark.parametrize("journal", ["wal", "truncate", "unfinished"])
def test_a_database_is_read_in_a_directory_that_the_user_must_not_write(tmp_path: Path, journal: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("skipped: needs root, to become another user")
    place = Path("/tmp") / f"gradmon_read_{os.getpid()}"  # tmp_path is root's alone
    writer = RankWriter(place, 0, journal="wal" if journal == "wal" else "truncate")
    writer.write(1, TARGETS)
    writer.close()
    os.chmod(writer.directory, 0o755)
    unfinished = Path(f"{writer.file}-journal")
    if journal == "unfinished":  # the journal of a killed rank: its header, then no page
        header = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + struct.pack(">5I", 0, 0, 1, 512, 4096)
        unfinished.write_bytes(header.ljust(512, b"\0"))
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            database = RankDatabase(writer.file)
        except RankDatabaseError:
            os._exit(100)
        (metric,) = database.metrics
        rows = sum(len(page) for _, page in database.pages(metric, metric.partitions[0], ["norm"]))
        os._exit(rows)
    try:
        found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert found == (100 if journal == "unfinished" else len(TARGETS))
    finally:
        shutil.rmtree(place)


def test_a_reader_holds_no_lock_between_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RankWriter(tmp_path, 0, journal="truncate")
    writer.write(1, TARGETS)
    change(
        writer.file,
        "UPDATE monitoring_targets SET micro_step = 1 WHERE target_id = 2; INSERT INTO target_tensors "
        "SELECT 4, target_id, 0, step, '[' || step || ']', 'torch.float32' FROM monitoring_targets, "
        "(SELECT 1 AS step UNION SELECT 2 UNION SELECT 3)",
    )
    whole = RankDatabase(writer.file)
    (metric,) = whole.metrics
    monkeypatch.setattr(rank_database, "_PAGE_ROWS", 2)
    paged = RankDatabase(writer.file)
    assert paged.tensors(metric) == whole.tensors(metric)
    notes = [note[2:] for note in paged.tensors(metric) if note[:2] == (0, 2)]
    assert notes[1:] == [(2, "[2]", "torch.float32"), (3, "[3]", "torch.float32")]
    assert paged.kinds_with_micro_steps() == whole.kinds_with_micro_steps() >= {"grad_reduced"}
    pages = paged.pages(metric, metric.partitions[0], ["norm"])
    for _ in pages:
        change(writer.file, "PRAGMA busy_timeout = 0; UPDATE monitoring_targets SET vpp_stage = 0")


def test_a_table_has_at_most_100000_rows(run: Commands, tmp_path: Path) -> None:
    RankWriter(tmp_path, 0).write(1, TARGETS)
    fits = run("query", "SELECT i FROM range(100000) AS r(i)", tmp_path)
    assert (fits.code, fits.err) == (0, "")
    more = run("query", "SELECT i FROM range(100001) AS r(i)", tmp_path)
    assert more.code == 1
    assert "stopped after 100000 rows" in more.err
    assert more.out == fits.out


def test_places_runs_and_ranks_are_found(run: Commands, tmp_path: Path) -> None:
    old = RankWriter(tmp_path, 0, run="11111111")
    old.write(1, ["a"])
    os.utime(old.file, (1, 1))
    for rank in (10, 2, 0):
        RankWriter(tmp_path, rank, run="22222222").write(1, ["a"])
    (tmp_path / "Nov24_08-30-12-rank5-22222222").mkdir()  # no database in it
    (tmp_path / "another").mkdir()
    ranks = ["SELECT rank, run_id FROM v_files", "--format", "csv"]
    newest = run("query", *ranks, tmp_path)
    assert newest.out == "rank,run_id\n0,22222222\n2,22222222\n10,22222222\n"
    assert newest.err == (
        f"gradmonctl: showing run 22222222, the newest of 2 in {tmp_path}; --run chooses another\n"
    )
    assert run("query", *ranks, "--run", "11111111", tmp_path).out == "rank,run_id\n0,11111111\n"
    wrong = run("query", *ranks, "--run", "33333333", tmp_path)
    assert wrong.err == f"gradmonctl: {tmp_path}: no run 33333333; there are: 11111111, 22222222\n"
    (tmp_path / "run-22222222.json").write_text('{"format": 1}')
    assert run("query", *ranks, tmp_path / "run-22222222.json").out == newest.out
    # A copy under another name is no other rank.
    first = tmp_path / "Nov24_08-30-12-rank0-22222222"
    shutil.copytree(first, tmp_path / f"good-{first.name}")
    assert run("query", *ranks, tmp_path).out == newest.out
    for place in (old.directory, f"{old.directory}/", old.file):
        assert run("query", *ranks, place).out == "rank,run_id\n0,11111111\n"
    renamed = old.directory.rename(tmp_path / f"good-{old.directory.name}")
    assert run("query", *ranks, renamed).out == "rank,run_id\n0,11111111\n"
    unnamed = renamed.rename(tmp_path / "Nov24_08-30-12_csv2db")
    assert run("query", *ranks, unnamed).out == "rank,run_id\n,\n"


def test_usage_errors_and_missing_places(run: Commands, tmp_path: Path) -> None:
    wrong: "list[list[str]]" = [[], ["--steps", "2:1"], ["--steps", "x"], ["SELECT 1", "--format", "xml"]]
    for words in [*wrong, ["--rank", "-1"], ["--rank", "x"], ["SELECT 1", "--nonsense"]]:
        answer = run("query", *words)
        assert answer.code == 2, words
        assert answer.err.startswith("gradmonctl: ")
        assert answer.err.endswith('\ntry "gradmonctl query --help"\n')
    assert (
        run("query", "SELECT 1", tmp_path / "none").err
        == f"gradmonctl: {tmp_path}/none: No such file or directory\n"
    )
    assert (
        f"gradmonctl: {tmp_path}: no directory of a rank and no CSV file"
        in run("query", "SELECT 1", tmp_path).err
    )


def test_databases_with_any_bytes_give_rows_or_an_error(run: Commands, tmp_path: Path) -> None:
    writer = RankWriter(tmp_path, 0)
    for step in (1, 2, 501):
        writer.write(step, TARGETS)
    writer.close()
    valid = writer.file.read_bytes()
    chosen = random.Random(7)
    codes = set()
    for _ in range(60):
        writer.file.write_bytes(corrupted(valid, chosen.choice([1, 3, 50]), chosen))
        sql = "SELECT count(*), sum(value), max(target) FROM v_metrics"
        answer = run("query", sql, "--format", "csv", tmp_path)
        assert (answer.code == 0) == (answer.err == "")
        codes.add(answer.code)
    assert {0, 1} <= codes <= {0, 1, 7}


def test_no_progress_bar_is_printed_among_the_rows(run: Commands, tmp_path: Path) -> None:
    RankWriter(tmp_path, 0).write(1, TARGETS)
    assert csv_of(run, "SELECT current_setting('enable_progress_bar') AS it", tmp_path) == "it\nFalse\n"


SHELL = """
ask() { "$CTL" query 'SELECT i FROM range(200000) AS r(i)' --format "$1" "$DIR" 2>"$DIR/error"; }
for format in csv json; do
  ask $format | head -n 1 >/dev/null; [ "${PIPESTATUS[*]}" = '0 0' ] && [ ! -s "$DIR/error" ] || exit 3
  ask $format >/dev/full; [ $? = 1 ] || exit 4
  [ "$(cat "$DIR/error")" = 'gradmonctl: cannot write: No space left on device' ] || exit 5
done
"""


def test_gradmonctl_starts_it_with_its_options_and_output(job: Path) -> None:
    environment = {**os.environ, "MONITOR_OUTPUT_DIR": str(job), "CTL": GRADMONCTL, "DIR": str(job)}
    command = [GRADMONCTL, "query", "SELECT count(*) AS n FROM v_metrics", "--format", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, '[\n {"n": 750}\n]\n', "")
    assert subprocess.run(["bash", "-c", SHELL], env=environment).returncode == 0


def test_gradmonctl_names_what_to_install(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "GRADMON_PYTHON": "/usr/bin/python3"}
    alone = shutil.copy(GRADMONCTL, tmp_path / "gradmonctl")  # beside no package
    done = subprocess.run([alone, "query", "SELECT 1"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "gradmonctl: query needs the Python package gradmon-read: /usr/bin/python3 -m pip install "
        "'gradmon-read[analysis]'\n"
    )
    packages = Path(os.environ["GRADMON_BUILD_DIR"]) / "python"
    environment["PYTHONPATH"] = str(packages)
    done = subprocess.run([alone, "query", "SELECT 1"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "gradmonctl: gradmonctl query needs the Python package duckdb: /usr/bin/python3 -m "
    )
    done = subprocess.run([alone, "query", "--help"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0
