"""Studies: rows are those of single calls, answers are true where they say and false one step before."""

import itertools
import math

import numpy as np
import pytest

import iomodel
from iomodel.errors import InputError
from iomodel.study import Units, Worker
from iomodel.studyfile import read_study, studies
from iomodel.table import record
from iomodel.tape import BLOCK

SEQS = [1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0]


def profile(gpu, **values):
    found = iomodel.load_profile(gpu)
    for key, amount in values.items():
        found = found.override(key, amount)
    return found


# --- rows -------------------------------------------------------------------------------------


def test_the_study_of_the_contract_gives_the_rows_of_single_calls():
    # names vary slowest, then numbers in the order written, then variants
    study = iomodel.sweep(
        command="attention",
        base={"heads": 32, "head_dim": 128, "causal": True},
        vary={"seq": "1k..128k x2", "gpu": ["a100-sxm-80gb", "h100-sxm", "h200"], "set.l2": ["50MB", "100MB"]},
        columns=["bytes_dram_read", "seconds_expected", "speedup"],
    )
    expected = []
    for gpu, seq, l2 in itertools.product(["a100-sxm-80gb", "h100-sxm", "h200"], SEQS, [50e6, 100e6]):
        for result in iomodel.attention(seq=seq, causal=True, gpu=profile(gpu, l2=l2)).results:
            one = record(result)
            row = {"gpu": gpu, "seq": seq, "set.l2": l2, "variant": result.variant}
            expected.append(row | {c: one[c] for c in ("bytes_dram_read", "seconds_expected", "speedup")})
    assert list(study.rows()) == expected
    assert study.points == 48


@pytest.mark.parametrize(
    ("command", "base", "vary"),
    [
        (
            "attention",
            {"gpu": "h100-sxm", "causal": True},
            {"seq": "1..3k step 7", "kv_heads": [4, 8], "batch": [1, 3]},
        ),
        ("attention", {"gpu": "a100-sxm-80gb"}, {"heads": [8, 16, 32], "seq": "1k..9k step 16"}),
        ("decode", {"gpu": "h200", "kv_heads": 8}, {"batch": "1..64 step 1", "kv_len": "128..1M x1.7"}),
        ("gemm", {"gpu": "mi300x", "epilogue": "gelu"}, {"m": "1..600 step 1", "k": [512, 4096], "n": [4096]}),
        (
            "attention",
            {},
            {"seq": "2k..64k x2", "set.hbm": "1TB/s..8TB/s step 0.1TB/s", "set.launch.eager": ["0us", "9us"]},
        ),
    ],
)
def test_every_column_of_a_recorded_study_is_a_single_call_s(command, base, vary):
    columns = [
        "launches",
        "flops",
        "bytes_compulsory",
        "bytes_l2",
        "bytes_dram_read",
        "bytes_dram_write",
        "intensity",
    ]
    columns += [
        "bound",
        "seconds_roofline",
        "seconds_expected",
        "seconds_launch",
        "speedup",
        "recommended",
        "memory_peak",
    ]
    study = iomodel.sweep(command=command, base=base, vary=vary, columns=columns)
    rows = list(study.rows())
    generator = np.random.default_rng(3)
    variants = len(rows) // study.points
    for point in generator.integers(0, study.points, 40):
        own = rows[point * variants : (point + 1) * variants]
        sets = {k.removeprefix("set."): own[0][k] for k in vary if k.startswith("set.")}
        sizes = {k: own[0][k] for k in vary if not k.startswith("set.")}
        gpu = profile(base.get("gpu", "h100-sxm"), **sets)
        rest = {k: v for k, v in base.items() if k != "gpu"}
        analysis = getattr(iomodel, command)(**rest, **sizes, gpu=gpu)
        for row, result in zip(own, analysis.results, strict=True):
            one = record(result) | {"memory_peak": result.memory_peak}
            assert {c: row[c] for c in columns} == {c: one[c] for c in columns}, (row["variant"], sizes)


def test_rows_do_not_depend_on_how_the_grid_is_cut():
    # 128 lengths x 9,000 bandwidths: units hold one length each, in pieces
    keys = {"command": "attention", "vary": {"seq": [1024, 5000], "set.hbm": "1TB/s..10TB/s step 0.5GB/s"}}
    keys |= {"variants": ["fa2"], "columns": ["seconds_expected"]}
    study = iomodel.sweep(**keys).study
    units = Units.of(study)
    assert len(units) == 4
    assert units.points(0) == 9001
    spans = [units[i][1:] for i in range(4)]
    assert spans == [(0, 9001), (9001, 18001), (18001, 27002), (27002, 36002)]
    columns = iomodel.sweep(**keys).columns()
    for i in (0, 1, 9000, 9001, 18000, 18001, 36001):
        gpu = profile("h100-sxm", hbm=columns["set.hbm"][i])
        alone = iomodel.attention(seq=columns["seq"][i], gpu=gpu)["fa2"].estimate.seconds.expected
        assert columns["seconds_expected"][i] == alone


def test_multiples_are_of_each_gpu_s_own_value():
    study = iomodel.sweep(
        command="decode",
        base={"kv_len": 4096},
        vary={"gpu": ["l4", "h200"], "set.hbm": ["1x", "2x"]},
        columns=["gpu.memory.hbm"],
        variants="split-k",
    )
    assert [row["gpu.memory.hbm"] for row in study.rows()] == [300e9, 600e9, 4.8e12, 9.6e12]


def test_zipped_axes_advance_together():
    study = iomodel.sweep(
        command="gemm",
        vary={"m": [128, 256], "n": [1024, 2048], "k": [64, 4096]},
        zip=["m", "n"],
        variants="fused",
        columns=["flops"],
    )
    expected = [2 * m * n * k for m, n in ((128, 1024), (256, 2048)) for k in (64, 4096)]
    assert [row["flops"] for row in study.rows()] == expected


def test_cases_come_from_a_csv_with_names_and_sizes(tmp_path):
    (tmp_path / "shapes.csv").write_text("seq,heads,dtype\n4096,32,bf16\n1k,8,fp8\n", encoding="utf-8")
    study = tmp_path / "study.yaml"
    study.write_text(
        "command: attention\ncases: shapes.csv\nvary: {batch: [1, 2]}\ncolumns: [flops]\n", encoding="utf-8"
    )
    rows = [row for row in iomodel.sweep(study).rows() if row["variant"] == "fa2"]
    assert [(r["seq"], r["heads"], r["dtype"], r["batch"]) for r in rows] == [
        (4096.0, 32.0, "bf16", 1.0),
        (4096.0, 32.0, "bf16", 2.0),
        (1024.0, 8.0, "fp8", 1.0),
        (1024.0, 8.0, "fp8", 2.0),
    ]
    for row in rows:
        alone = iomodel.attention(seq=row["seq"], heads=row["heads"], dtype=row["dtype"], batch=row["batch"])
        assert row["flops"] == alone["fa2"].estimate.flops


def test_random_points_are_the_same_for_a_seed_and_spread_over_their_ranges():
    def drawn(seed, scale="log"):
        sample = {"points": 40000, "seed": seed, "scale": scale}
        keys = {
            "command": "decode",
            "vary": {"kv_len": "1..100000", "set.hbm": "1TB/s..4TB/s"},
            "variants": "split-k",
        }
        return iomodel.sweep(**keys, sample=sample, columns=["seconds_expected"]).columns()

    one, again, other, even = drawn(1), drawn(1), drawn(2), drawn(1, "linear")
    assert all((one[name] == again[name]).all() for name in one)
    assert (one["kv_len"] != other["kv_len"]).any()
    assert one["kv_len"].min() == 1
    assert one["kv_len"].max() <= 100000
    assert (one["kv_len"] == np.floor(one["kv_len"])).all()
    # half of log-uniform draws lie below sqrt(1e5) = 316, half of even ones below 50,000
    # (40,000 draws: 1 % is 4 sigma)
    assert abs((one["kv_len"] <= 316).mean() - 0.5) < 0.01
    assert abs((even["kv_len"] <= 50000).mean() - 0.5) < 0.01
    assert abs((one["set.hbm"] <= 2e12).mean() - 0.5) < 0.01
    assert abs(np.corrcoef(np.log(one["kv_len"]), np.log(one["set.hbm"]))[0, 1]) < 0.02


def test_derived_columns_and_conditions_work_on_whole_columns():
    study = iomodel.sweep(
        command="decode",
        base={"kv_heads": 8},
        vary={"batch": "1..300 step 1", "kv_len": [1024, 32768]},
        derive={"tokens_per_second": "batch / seconds_expected", "double": "2 * tokens_per_second"},
        where="recommended and (double > 2e5 or not kv_len >= 32k and bound == 'launch')",
        columns=["tokens_per_second", "double", "bound", "seconds_expected"],
    )
    kept = {(row["batch"], row["kv_len"]): row for row in study.rows()}
    for batch, kv_len in itertools.product([1, 2, 3, 40, 41, 150, 299, 300], [1024, 32768]):
        analysis = iomodel.decode(kv_len=kv_len, batch=batch, kv_heads=8)
        best = next(r for r in analysis.results if r.recommended)
        rate = batch / best.estimate.seconds.expected
        holds = 2 * rate > 2e5 or (not kv_len >= 32768 and best.estimate.bound == "launch")
        assert ((batch, kv_len) in kept) == holds
        if holds:
            row = kept[batch, kv_len]
            assert row["tokens_per_second"] == rate
            assert row["double"] == 2 * rate
            assert row["variant"] == best.variant


def test_figures_of_other_variants_and_of_the_best_one():
    study = iomodel.sweep(
        command="attention",
        vary={"seq": "256..64k step 64"},
        variants="fa2",
        columns=["standard.bytes_dram", "best.seconds_expected", "gpu.board.tdp", "memory_peak"],
    )
    rows = list(study.rows())
    for row in rows[:: len(rows) // 7]:
        analysis = iomodel.attention(seq=row["seq"])
        best = next(r for r in analysis.results if r.recommended)
        assert row["standard.bytes_dram"] == analysis["standard"].estimate.bytes.dram
        assert row["best.seconds_expected"] == best.estimate.seconds.expected
        assert row["memory_peak"] == analysis["fa2"].memory_peak
        assert row["gpu.board.tdp"] == 700.0


def test_columns_and_batches_hold_the_rows(tmp_path):
    study = iomodel.sweep(
        command="decode", vary={"kv_len": "1..40k step 1"}, variants="split-k", columns=["bound"]
    )
    whole = study.columns()
    assert len(whole["kv_len"]) == 40960
    parts = list(study.batches(jobs=2))
    assert len(parts) == math.ceil(40960 / BLOCK)
    assert (np.concatenate([p["bound"] for p in parts]) == whole["bound"]).all()
    assert [r["bound"] for r in itertools.islice(study.rows(), 5)] == whole["bound"][:5].tolist()


# --- answers ----------------------------------------------------------------------------------


def holds_at(study, text, row, axis, value, evaluate):
    """The condition at one value of the axis, by a call of its own."""
    settings = {k: v for k, v in row.items() if k in [a.name for a in study.axes]} | {axis: value}
    base = {k: v for k, v in study.base.items() if k != "gpu"}
    gpu = profile(settings.pop("gpu", study.base["gpu"]))
    for name in [n for n in settings if n.startswith("set.")]:
        gpu = gpu.override(name.removeprefix("set."), settings.pop(name))
    analysis = study.analyse(**base, **settings, gpu=gpu)
    names = {f"gpu.{key}": gpu[key] for key in gpu.values} | settings | base
    best = next(r for r in analysis.results if r.recommended)
    if study.variants:
        best = analysis[study.variants[0]]
    for result in analysis.results:
        flat = record(result) | {"memory_peak": result.memory_peak, "bytes_dram": result.estimate.bytes.dram}
        names |= {f"{result.variant}.{k}": v for k, v in flat.items()}
        if result is best:
            names |= flat
    for name, expression in study.derive.items():
        names[name] = evaluate(expression, names)
    return evaluate(text, names)


FINDS = [
    name
    for name, path in studies().items()
    if read_study(path).question and read_study(path).question.kind == "find"
]


@pytest.mark.parametrize("name", FINDS)
def test_every_answer_is_true_there_and_false_one_step_before(name):
    from iomodel.expression import evaluate

    sweep = iomodel.sweep(name)
    study, settings = sweep.study, sweep.study.question.settings
    end = "first" if "first" in settings else "last"
    axis, text = settings[end], settings["where"]
    rows = sweep.answers()
    assert rows
    for row in rows:
        if row["answer"] == "never":
            assert row[axis] is None
            continue
        assert holds_at(study, text, row, axis, row[axis], evaluate)
        if row["answer"] == "found":
            assert not holds_at(study, text, row, axis, row["next_to"], evaluate)
            assert (row["next_to"] < row[axis]) == (end == "first")


def test_the_first_length_is_the_first_of_all():
    # by brute force: every length up to the answer
    keys = {"command": "attention", "base": {"gpu": "h200"}, "vary": {"seq": "128..8k x2"}}
    (row,) = iomodel.sweep(**keys, find={"first": "seq", "where": "fa3.speedup >= 4"}).answers()
    seqs = np.arange(128.0, row["seq"] + 1)
    gains = iomodel.attention(seq=seqs, gpu="h200")["fa3"].speedup
    assert seqs[np.argmax(gains >= 4)] == row["seq"]
    assert row["next_to"] == row["seq"] - 1


def test_a_bandwidth_is_found_to_the_step_asked_for():
    keys = {
        "command": "decode",
        "base": {"kv_len": "32k", "batch": 8, "kv_heads": 8},
        "vary": {"set.hbm": "1TB/s..30TB/s x2"},
    }
    find = {"first": "set.hbm", "where": "seconds_expected <= 300 us", "step": "1GB/s"}
    (row,) = iomodel.sweep(**keys, find=find).answers()
    assert row["answer"] == "found"
    assert math.isclose(row["set.hbm"] - row["next_to"], 1e9)
    for value, holds in ((row["set.hbm"], True), (row["next_to"], False)):
        results = iomodel.decode(kv_len=32768, batch=8, kv_heads=8, gpu=profile("h100-sxm", hbm=value)).results
        assert (min(r.estimate.seconds.expected for r in results) <= 300e-6) == holds


def test_the_largest_context_that_fits():
    keys = {"command": "attention", "base": {"gpu": "l4"}, "vary": {"seq": "1k..1M x2"}}
    (row,) = iomodel.sweep(
        **keys, find={"last": "seq", "where": "standard.memory_peak <= gpu.memory.capacity"}
    ).answers()
    # Q, K, V and O of 2 x 32 x 128 bytes a token, S and P of 2 x 32 bytes a pair of tokens; L4: 24 GB
    need = lambda n: 4 * 8192 * n + 2 * 64 * n * n  # noqa: E731
    seq = row["seq"]
    capacity = profile("l4")["memory.capacity"]
    peaks = [iomodel.attention(seq=s, gpu="l4")["standard"].memory_peak for s in (seq, seq + 1)]
    assert peaks[0] <= capacity < peaks[1]
    assert peaks[0] <= need(seq)  # not all of them are alive at once


def test_never_and_always():
    keys = {"command": "attention", "vary": {"seq": [1024, 2048]}}
    (never,) = iomodel.sweep(**keys, find={"first": "seq", "where": "fa3.speedup > 1000"}).answers()
    assert (never["answer"], never["seq"], never["next_to"]) == ("never", None, None)
    (always,) = iomodel.sweep(**keys, find={"first": "seq", "where": "fa3.speedup > 0"}).answers()
    assert (always["answer"], always["seq"]) == ("always", 1024.0)


def test_crossovers_of_variants_and_of_gpus():
    keys = {"command": "attention", "base": {"gpu": "mi300x"}, "vary": {"seq": "16..16k x2"}}
    rows = iomodel.sweep(**keys, crossover={"on": "seq", "between": ["fa2", "standard"]}).answers()
    for row in rows:
        if row["seq"] is None:
            continue
        other = {"fa2": "standard", "standard": "fa2"}[row["ahead"]]
        for seq, leads in ((row["seq"], True), (row["next_to"], False)):
            analysis = iomodel.attention(seq=seq, gpu="mi300x")
            times = [analysis[v].estimate.seconds.expected for v in (row["ahead"], other)]
            assert (times[0] < times[1]) == leads
    keys = {"command": "attention", "base": {}, "vary": {"gpu": ["h100-sxm", "mi300x"], "seq": "128..128k x2"}}
    (row,) = iomodel.sweep(**keys, crossover={"on": "seq", "between": ["h100-sxm", "mi300x"]}).answers()

    def best(gpu, seq):
        return min(
            r.estimate.seconds.expected
            for r in iomodel.attention(seq=seq, gpu=gpu).results
            if r.variant != "io-lower-bound"
        )

    assert row["ahead"] == "mi300x"
    assert best("mi300x", row["seq"]) < best("h100-sxm", row["seq"])
    assert best("mi300x", row["next_to"]) >= best("h100-sxm", row["next_to"])


def test_a_pareto_front_is_what_nobody_beats():
    gpus = ["a100-sxm-80gb", "h100-sxm", "h200", "l4", "l40s", "mi300x", "rtx-4090"]
    keys = {
        "command": "decode",
        "base": {"kv_len": "16k"},
        "vary": {"gpu": gpus, "batch": [1, 16]},
        "where": "recommended",
    }
    least = ["seconds_expected", "gpu.board.tdp"]
    every = list(iomodel.sweep(**keys, columns=least).rows())
    front = iomodel.sweep(**keys, columns=least, pareto={"least": least, "within": "batch"}).answers()

    def beaten(row):
        return any(
            other["batch"] == row["batch"]
            and all(other[c] <= row[c] for c in least)
            and any(other[c] < row[c] for c in least)
            for other in every
        )

    key = lambda r: (r["batch"], r["seconds_expected"])  # noqa: E731
    assert sorted(front, key=key) == sorted((r for r in every if not beaten(r)), key=key)
    assert 0 < len(front) < len(every)


def test_elasticities_are_those_of_known_powers():
    # the lower bound's roofline time of a memory-bound case is bytes / bandwidth: elasticity -1,
    # and nothing else matters
    keys = {"command": "attention", "vary": {"seq": [16]}, "variants": "io-lower-bound"}
    rows = iomodel.sweep(**keys, sensitivity={"of": "seconds_roofline"}).answers()
    assert [(row["value"], round(row["elasticity"], 6)) for row in rows] == [("memory.hbm", -1.0)]
    rows = iomodel.sweep(
        **keys, sensitivity={"of": "io-lower-bound.seconds_host", "to": ["eager", "hbm"]}
    ).answers()
    assert [(row["value"], round(row["elasticity"], 6)) for row in rows] == [("launch.eager", 1.0)]


# --- built-in studies -------------------------------------------------------------------------


@pytest.mark.parametrize("name", studies())
def test_each_built_in_study_asks_a_question_and_answers_it(name):
    sweep = iomodel.sweep(name)
    assert sweep.study.title
    rows = list(sweep.rows())
    assert rows
    assert any(value is not None for row in rows for value in row.values())


def test_there_are_a_dozen_built_in_studies():
    assert len(studies()) >= 12


# --- wrong input ------------------------------------------------------------------------------

WRONG = [
    ("command: atention\nvary: {seq: [1]}", r"study.yaml:1: unknown command 'atention', did you mean 'attention'"),
    ("vary: {seq: [1]}", r"study.yaml:1: a study needs command: one of .*attention"),
    ("command: attention\nvari: {seq: [1]}", r"study.yaml:2: unknown study key 'vari', did you mean 'vary'"),
    ("command: attention\nvary:\n  seq: [1]\n  sq: [1]", r"study.yaml:4: unknown axis 'sq', did you mean 'seq'"),
    (
        "command: attention\nvary: {seq: [1], set.l3: [1MB]}",
        r"study.yaml:2: unknown profile key 'l3', did you mean 'l2'",
    ),
    ("command: attention\nvary: {seq: [1], set.l2: [50]}", r"study.yaml:2: set.l2: 50 has no unit"),
    (
        "command: attention\nvary: {seq: [1], set.l2: [5s]}",
        r"study.yaml:2: set.l2: '5s': unit 's' does not measure bytes",
    ),
    (
        "command: attention\nvary: {seq: [1], gpu: [h1000]}",
        r"study.yaml:2: unknown GPU 'h1000', did you mean 'h100'",
    ),
    ("command: attention\nvary: {seq: []}", r"study.yaml:2: seq has no values"),
    ("command: attention\nvary: {seq: [1.5]}", r"study.yaml:2: seq: '?1.5'? is not a whole number"),
    ("command: attention\nvary: {seq: 4k..1k x2}", r"study.yaml:2: seq: '4k..1k x2' starts above its end"),
    (
        "command: attention\nvary: {seq: 1k..4k step 0}",
        r"study.yaml:2: seq: the step of '1k..4k step 0' must be above zero",
    ),
    (
        "command: attention\nvary: {seq: 1k..4k x1}",
        r"study.yaml:2: seq: the factor of '1k..4k x1' must be a number above 1",
    ),
    (
        "command: attention\nvary: {seq: 1k..4k xx}",
        r"study.yaml:2: seq: the factor of '1k..4k xx' must be a number above 1",
    ),
    (
        "command: attention\nvary: {seq: 1k..4k}",
        r"study.yaml:2: seq: '1k..4k' does not say how to go; write x2 or step N",
    ),
    (
        "command: attention\nvary: {seq: 1..1000000G step 1}",
        r"study.yaml:2: seq: .* has 1e\+15 values, above 1e\+12",
    ),
    ("command: attention\nvary: {seq: 1..900T step 1}", r"study.yaml:2: seq: .* has 9e\+14 values, above 1e\+12"),
    (
        "command: attention\nvary: {seq: 1..10M step 1, batch: 1..1M step 1}",
        r"study.yaml:2: 1e\+13 points, above 1e\+12; narrow an axis or use sample:",
    ),
    ("command: attention\nbase: {batch: 4}", r"study.yaml:1: nothing varies"),
    ("command: attention\nvary: {batch: [1]}", r"study.yaml:2: attention needs seq, in base or vary"),
    ("command: attention\nbase: {seq: 4}\nvary: {seq: [1]}", r"study.yaml:2: seq is varied too; give it once"),
    (
        "command: attention\nvary: {seq: [1, 2], batch: [1]}\nzip: [seq, batch]",
        r"study.yaml:3: zipped axes must be equally long",
    ),
    ("command: attention\nvary: {seq: [1]}\nzip: [seq, bath]", r"study.yaml:3: unknown axis 'bath'"),
    ("command: attention\nvary: {seq: [1]}\nsample: {points: 9}", r"study.yaml:3: no range to draw from"),
    (
        "command: attention\nvary: {seq: 1..9}\nsample: {points: 0}",
        r"study.yaml:3: points: '?0'? must be at least 1",
    ),
    ("command: attention\nvary: {seq: 1..9}\nsample: {scale: cubic}", r"study.yaml:3: unknown scale 'cubic'"),
    (
        "command: attention\nvary: {seq: [1]}\ncolumns: [speedup, second_expected]",
        r"study.yaml:3: unknown column 'second_expected', did you mean 'seconds_expected'",
    ),
    ("command: attention\nvary: {seq: [1]}\nvariants: [fa4]", r"unknown variant 'fa4', did you mean"),
    (
        "command: attention\nvary: {seq: [1]}\nderive: {a: b + 1, b: a - 1}",
        r"study.yaml:3: .*a -> b -> a depends on itself",
    ),
    (
        "command: attention\nvary: {seq: [1]}\nderive: {a: 2 * sped}",
        r"study.yaml:3: expression '2 \* sped': unknown name 'sped'",
    ),
    ("command: attention\nvary: {seq: [1]}\nderive: {a: __import__('os')}", r"study.yaml:3: expression .*"),
    ("command: attention\nvary: {seq: [1]}\nwhere: speedup >", r"study.yaml:3: expression .*a value is missing"),
    ("command: attention\nvary: {seq: [1]}\nfind: {first: seq}", r"study.yaml:3: find needs first: AXIS"),
    (
        "command: attention\nvary: {seq: [1, 2]}\nfind: {first: sq, where: speedup > 2}",
        r"study.yaml:3: unknown axis 'sq'",
    ),
    (
        "command: attention\nvary: {seq: [1, 2]}\nfind: {first: seq, where: speedup}",
        r"study.yaml:3: 'speedup' is a number",
    ),
    (
        "command: attention\nvary: {seq: [1, 2], dtype: [bf16]}\nfind: {first: dtype, where: speedup > 2}",
        r"study.yaml:3: dtype varies one value at a time",
    ),
    (
        "command: attention\nvary: {seq: [1, 2]}\nfind: {first: seq, where: speedup > 2, step: 0}",
        r"study.yaml:3: step: 0 is not a step of seq",
    ),
    (
        "command: attention\nvary: {seq: [1, 2]}\ncrossover: {on: seq, between: [fa2]}",
        r"study.yaml:3: crossover needs on: AXIS and between",
    ),
    (
        "command: attention\nvary: {seq: [1, 2]}\ncrossover: {on: seq, between: [fa2, fa9]}",
        r"study.yaml:3: unknown figure 'fa9.seconds_expected'",
    ),
    (
        "command: attention\nvary: {seq: [1, 2]}\npareto: {least: seconds_expected}",
        r"study.yaml:3: pareto needs two figures or more",
    ),
    (
        "command: attention\nvary: {seq: [1, 2]}\nsensitivity: {by: 90%}",
        r"study.yaml:3: by: '90%' is not a small share",
    ),
    ("command: attention\nvary: {seq: [1, 2]}\npareto: {}\nfind: {}", r"study.yaml:\d: one question a study"),
    (
        "command: attention\nvary: {seq: [1], heads: [3], kv_heads: [2]}",
        r"study.yaml:2: kv-heads \(2\) must divide heads \(3\)",
    ),
    ("command: attention\ncases: none.csv", r"none.csv: No such file"),
    ("command: attention\nvary: [seq]", r"study.yaml:2: vary must hold keys"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said_with_file_and_line(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(text + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        list(iomodel.sweep("study.yaml").rows())
    assert "\n" not in str(caught.value)


def test_a_point_deep_in_the_grid_that_cannot_be_is_named(tmp_path):
    # 6 heads on 4 K/V heads: the first points are fine, so only the unit that holds it can say so
    study = iomodel.sweep(command="attention", vary={"heads": [4, 8, 6], "kv_heads": [4], "seq": "1..300 step 1"})
    with pytest.raises(InputError, match=r"seq 1, kv_heads 4, heads 6: kv-heads \(4\) must divide heads \(6\)"):
        list(study.rows())


def test_an_unknown_study_offers_the_built_in_ones():
    with pytest.raises(InputError, match="unknown study 'ridge-bach', did you mean 'ridge-batch'"):
        iomodel.sweep("ridge-bach")


def test_a_worker_keeps_few_recordings():
    study = iomodel.sweep(
        command="attention", vary={"head_dim": [32, 64, 96, 128, 192, 256], "seq": "1..300 step 1"}
    ).study
    worker = Worker(study)
    for number in range(len(worker.units)):
        worker.batch(number)
    assert len(worker.recordings) <= 4
