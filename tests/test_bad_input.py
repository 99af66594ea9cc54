"""Wrong input: exit 2, one line on stderr that says what is wrong, nothing on stdout, no traceback.

Exit 1 is kept for a machine that fails (disk full, closed output), and a reader that goes away is no failure.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from iomodel import InputError, attention, chain, decode, gemm

SHORT = ("attention", "--seq", "1024")


def refused(ran, *words):
    """Exit 2, one line on stderr with these words in it, stdout empty."""
    assert ran.code == 2, (ran.code, ran.err)
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.endswith("\n")
    assert ran.err.startswith("iomodel: ")
    assert "Traceback" not in ran.err
    assert len(ran.err) < 600
    for word in words:
        assert word in ran.err, ran.err


# --- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "1.5",
        "0.5k",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e400",
        "8,192",
        "0x2000",
        "\u0668\u0661\u0669\u0662",  # 8192 in Arabic-Indic digits: int() would take it
        "\uff18",  # a full-width 8
        "1_000",
        "+5",
        "--5",
        "abc",
        "",
        "16kk",
        "16 k k",
        "99999999999999999999",
        "1e16",
        "1" * 5000,  # past the interpreter's limit of digits
        "[1]",
        "true",
        "1\n2",
        "1\x00",
    ],
)
@pytest.mark.parametrize("option", ["--seq", "--heads"])
def test_sizes(iomodel_run, option, text):
    arguments = ["attention", "--seq", "1024"] if option != "--seq" else ["attention"]
    if text == "0.5k":
        assert iomodel_run(*arguments, option, text).code == 0  # 512
        return
    refused(iomodel_run(*arguments, option, text), option)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8192", 8192), ("8k", 8192), ("8K", 8192), ("8192.0", 8192), ("1e4", 10_000), ("2M", 2_000_000), (" 7 ", 7)],
)
def test_spellings_of_sizes_have_one_meaning(iomodel_run, text, tokens):
    """k is 1024, as lengths are said; M, G and T are decimal."""
    ran = iomodel_run("attention", "--seq", text, "--format", "csv")
    bound = dict(
        zip(*[line.split(",") for line in (ran.out.split("\n")[0], ran.out.split("\n")[-2])], strict=True)
    )
    assert float(bound["bytes_compulsory"]) == 4 * tokens * 32 * 128 * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("attention",), ["--seq"]),
        (("attention", "--seq", "8", "--heads", "8", "--kv-heads", "12"), ["kv-heads (12)", "heads (8)"]),
        (("attention", "--seq", "8", "--heads", "8", "--kv-heads", "3"), ["must divide"]),
        (("decode", "--kv-len", "8", "--heads", "8", "--kv-heads", "3"), ["must divide"]),
        ((*SHORT, "--dtype", "bf61"), ["bf61", "did you mean 'bf16'"]),
        ((*SHORT, "--dtype", "fp8", "--gpu", "a100"), ["a100-sxm-80gb", "fp8", "bf16"]),
        ((*SHORT, "--gpu", "h1000"), ["h1000", "did you mean 'h100'"]),
        ((*SHORT, "--gpu", ""), ["empty"]),
        ((*SHORT, "--gpu", "h100,,h200"), ["empty"]),
        ((*SHORT, "--gpu", "zzz*"), ["zzz*"]),
        ((*SHORT, "--window", "0"), ["--window"]),
        ((*SHORT, "--dropout", "1"), ["--dropout"]),
        ((*SHORT, "--dropout", "-0.1"), ["--dropout"]),
        ((*SHORT, "--dropout", "nan"), ["--dropout"]),
        ((*SHORT, "--block-q", "1024", "--block-kv", "1024"), ["shared memory", "227 KiB"]),
        ((*SHORT, "--head-dim", "100000"), ["shared memory", "227 KiB"]),
        ((*SHORT, "--set", "shared_memory=1KiB", "--head-dim", "256"), ["shared memory", "1"]),
        ((*SHORT, "--launch", "fast"), ["fast", "eager"]),
        ((*SHORT, "--l2", "hot"), ["hot", "warm"]),
        ((*SHORT, "--format", "xml"), ["xml", "json"]),
        ((*SHORT, "--se", "8"), ["--se"]),
        ((*SHORT, "--nope"), ["--nope"]),
        ((*SHORT, "8"), ["8"]),
        (("attention", "--seq"), ["--seq"]),
        (("atention", "--seq", "8"), ["atention", "did you mean 'attention'"]),
        (("chain",), ["--ops"]),
        (("chain", "geluu"), ["geluu", "did you mean 'gelu'"]),
        (("chain", "gelu", "--ops", "3"), ["both"]),
        (("chain", "--ops", "0"), ["--ops"]),
        (("chain", "--ops", "10001"), ["--ops"]),
        (("chain", "--ops", "-3"), []),
        (("chain", "--ops", "2.5"), []),
        (("chain", "gelu:fp32"), ["cast"]),
        (("chain", "cast:fp99"), ["fp99"]),
        (("chain", "gelu", "--shape", "x"), ["--shape"]),
        (("chain", "gelu", "--shape", "4096xx2"), ["--shape"]),
        (("chain", "gelu", "--shape", "4096x-1"), ["--shape"]),
        (("chain", "gelu", "--shape", ""), ["--shape"]),
        (("chain", "gelu", "--keep", "nope"), ["nope", "gelu"]),
        (("gemm", "--m", "1", "--n", "1"), ["--k"]),
        (("gemm", "--m", "0", "--n", "1", "--k", "1"), ["--m"]),
        (("gemm", "--m", "1", "--n", "1", "--k", "1", "--epilogue", "gleu"), ["gleu", "did you mean 'gelu'"]),
        (("decode",), ["--kv-len"]),
        (("decode", "--kv-len", "0"), ["--kv-len"]),
        (("decode", "--kv-len", "9", "--kv-dtype", "q4"), ["q4"]),
        (("decode", "--kv-len", "9", "--splits", "0"), ["--splits"]),
    ],
)
def test_commands(iomodel_run, arguments, words):
    refused(iomodel_run(*arguments), *words)


@pytest.mark.parametrize("name", ["96", "80", "257", "1"])
def test_odd_head_dims_work(iomodel_run, name):
    assert iomodel_run("attention", "--seq", "197", "--head-dim", name).code == 0


def test_a_block_of_more_rows_than_queries_is_cut_and_said_so(iomodel_run):
    big = iomodel_run("attention", "--seq", "128", "--block-q", "512", "--format", "json")
    small = iomodel_run("attention", "--seq", "128", "--block-q", "128", "--format", "json")
    assert big.code == small.code == 0
    assert "block-q 512" in big.out
    assert big.out.split('"results"')[1].split('"notes"')[0] == small.out.split('"results"')[1].split('"notes"')[0]


def test_the_largest_sizes_stay_finite(iomodel_run):
    """1e15 tokens of 1e15 sequences: 1e30 x 32 x 128 x 2 B x 4; squares stay below 1e308."""
    ran = iomodel_run("attention", "--seq", "1e15", "--batch", "1e15", "--format", "csv")
    assert ran.code == 0
    assert "inf" not in ran.out
    assert "nan" not in ran.out
    cells = ran.out.splitlines()[-1].split(",")
    assert float(cells[5]) == pytest.approx(4 * 1e30 * 32 * 128 * 2)


# --- --set, --assert, --cases --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("hbm", "KEY=QUANTITY"),
        ("hbm=", "quantity"),
        ("=3TB/s", "KEY=QUANTITY"),
        ("hbm=3", "unit"),
        ("hbm=3 apples", "apples"),
        ("hbm=3 TB", "TB"),
        ("hbm=-3TB/s", "negative"),
        ("hbm=0TB/s", "above zero"),
        ("hbm=nan TB/s", "quantity"),
        ("hbm=1e999TB/s", "finite"),
        ("bandwith=3TB/s", "bandwith"),
        ("sm.count=12GB", "GB"),
        ("hbn=3TB/s", "did you mean 'hbm'"),
    ],
)
def test_set(iomodel_run, text, word):
    refused(iomodel_run(*SHORT, "--set", text), "--set", word)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fa2.speedup >=",
        "fa2.speedup >> 2",
        "fa9.speedup > 1",
        "fa2.sped > 1",
        "(fa2.speedup > 1",
        "fa2.speedup > 1 garbage",
        "fa2.bound > 3",
        "fa2.speedup / 0 > 1",
        "__import__('os').getcwd()",
        "fa2.speedup.__class__ == 1",
        "lambda: 1",
        "fa2.speedup > 1; fa2.speedup > 2",
    ],
)
def test_assert(iomodel_run, text):
    refused(iomodel_run(*SHORT, "--assert", text), "expression")


def test_an_assertion_compares(iomodel_run):
    refused(iomodel_run(*SHORT, "--assert", "fa2.speedup - 100"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("seq\n", []),
        ("sequence\n1024\n", ["sequence", "seq"]),
        ("seq,seq\n1,2\n", ["seq", "twice"]),
        ("seq,heads\n1024\n", [":2"]),
        ("seq,heads\n1024,8,9\n", [":2"]),
        ("seq\n1024\nabc\n", [":3", "abc"]),
        ("seq\n1024\n0\n2048\n", [":3", "0"]),
        ("seq\n1024\nnan\n", [":3", "nan"]),
        ("seq,gpu\n1024,h100\n1024,h1000\n", [":3", "h1000"]),
        ("seq,dtype\n1024,bf16\n1024,bf61\n", [":3", "bf61"]),
        ("seq,heads,kv_heads\n1024,8,8\n1024,8,3\n1024,8,4\n", [":3", "kv-heads"]),
        ("seq,causal\n1024,maybe\n", [":2", "maybe"]),
        ("heads\n8\n", ["seq"]),
        ("seq\n\x00\n", []),
    ],
)
def test_cases(iomodel_run, tmp_path, text, words):
    file = tmp_path / "cases.csv"
    file.write_text(text, encoding="utf-8")
    refused(iomodel_run("attention", "--cases", file), *words)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\x00", b"\xff\xfes\x00e\x00q\x00", b"seq\n\xe9\n"])
def test_cases_that_are_not_text(iomodel_run, tmp_path, content):
    file = tmp_path / "cases.csv"
    file.write_bytes(content)
    refused(iomodel_run("attention", "--cases", file), str(file))


def test_cases_that_cannot_be_read(iomodel_run, tmp_path):
    refused(iomodel_run("attention", "--cases", tmp_path), "directory")
    refused(iomodel_run("attention", "--cases", tmp_path / "none.csv"), "No such file")
    os.mkfifo(tmp_path / "pipe")
    refused(iomodel_run("attention", "--cases", tmp_path / "pipe"), "regular file")
    refused(iomodel_run("attention", "--cases", "/dev/zero"), "regular file")


# --- profiles -----------------------------------------------------------------------------------------

GOOD = """name: mine
architecture: hopper
memory:
  hbm: {value: 3 TB/s, source: test}
  l2: {value: 50 MB, source: test}
compute:
  "matmul:bf16": {value: 900 TFLOP/s, source: test}
  "vector:fp32": {value: 60 TFLOP/s, source: test}
"""


def test_a_small_profile_works(iomodel_run, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(GOOD)
    assert iomodel_run(*SHORT, "--gpu", file).code == 0
    file.write_text("\ufeff" + GOOD, encoding="utf-8")  # a byte order mark is harmless
    assert iomodel_run(*SHORT, "--gpu", file).code == 0


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("  hbm:", "  bandwith: {value: 2 TB/s, source: test}\n  hbm:", [":4", "bandwith"]),
        ("hbm: {value: 3 TB/s, source: test}", "hbn: {value: 3 TB/s, source: test}", [":4", "did you mean 'hbm'"]),
        ("  l2:", "  hbm: {value: 2 TB/s, source: test}\n  l2:", [":5", "duplicate", "4"]),
        ("name: mine", "name: mine\nname: yours", [":2", "duplicate"]),
        ("  l2:", "\tl2:", [":5", "tab"]),
        ("3 TB/s", "3", [":4", "unit"]),
        ("3 TB/s", "2039", [":4", "unit"]),
        ("3 TB/s", "'2,039 GB/s'", [":4"]),
        ("3 TB/s", "3 TB", [":4", "TB"]),
        ("3 TB/s", ".nan", [":4"]),
        ("3 TB/s", "-3 TB/s", [":4", "negative"]),
        ("3 TB/s", "0 TB/s", [":4", "above zero"]),
        ("{value: 3 TB/s, source: test}", "{value: 3 TB/s}", [":4", "source"]),
        ("{value: 3 TB/s, source: test}", "3 TB/s", [":4", "source"]),
        ("{value: 3 TB/s, source: test}", "{source: test}", [":4", "no value"]),
        ("{value: 3 TB/s, source: test}", "[3, 4]", [":4"]),
        ("architecture: hopper", "architecture: hoper", [":2", "hopper"]),
        ("architecture: hopper", "architecture: ../hopper", [":2"]),
        ("name: mine\n", "", ["name"]),
        ("memory:", "memory: 3\nboard:", [":3"]),
        ("name: mine", "name: &a mine\naliases: [*a, *a]", ["anchors"]),
        ("name: mine", "name: [mine", []),
    ],
)
def test_profiles(iomodel_run, tmp_path, before, after, words):
    file = tmp_path / "mine.yaml"
    assert before in GOOD
    file.write_text(GOOD.replace(before, after, 1))
    refused(iomodel_run(*SHORT, "--gpu", file), str(file), *words)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"# nothing\n",
        b"just words",
        b"- a\n- b\n",
        b"\x89PNG\r\n\x1a\n\x00\x00",
        GOOD.encode("utf-16"),
        GOOD.replace("test", "t\u00e9st").encode("latin-1"),
        GOOD.encode() + b"\x00",
        b"[" * 10_000,
        b"a: " + b"{b: " * 500,
        b"x" * 2_000_000,
        b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
        b'{"name": "x", "mem_bw": 3350000000000}',
    ],
)
def test_profiles_that_are_no_profiles(iomodel_run, tmp_path, content):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    refused(iomodel_run(*SHORT, "--gpu", file), str(file))


def test_profiles_that_cannot_be_read(iomodel_run, tmp_path):
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    refused(iomodel_run(*SHORT, "--gpu", folder), "directory")
    refused(iomodel_run(*SHORT, "--gpu", tmp_path / "none.yaml"), "No such file")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "none.yaml")
    refused(iomodel_run(*SHORT, "--gpu", tmp_path / "link.yaml"), "No such file")
    os.mkfifo(tmp_path / "pipe.yaml")
    refused(iomodel_run(*SHORT, "--gpu", tmp_path / "pipe.yaml"), "regular file")
    refused(iomodel_run(*SHORT, "--gpu", "/dev/zero"), "regular file")


def test_two_profiles_of_one_name(iomodel_run, tmp_path):
    for name, speed in (("a", "3 TB/s"), ("b", "4 TB/s")):
        (tmp_path / f"{name}.yaml").write_text(GOOD.replace("3 TB/s", speed))
    refused(iomodel_run(*SHORT, "--gpu", f"{tmp_path}/a.yaml,{tmp_path}/b.yaml"), "mine")


# --- the same through Python ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: attention(seq=0),
        lambda: attention(seq=float("nan")),
        lambda: attention(seq=True),
        lambda: attention(seq=None),
        lambda: attention(seq=[1024]),
        lambda: attention(seq=1024, gpu=[]),
        lambda: attention(seq=1024, dropout=True),
        lambda: attention(seq=1024, head_dim=0),
        lambda: chain(0),
        lambda: chain([]),
        lambda: chain("gelu", shape=(4, float("inf"))),
        lambda: gemm(1, 1, -1),
        lambda: decode(1.5),
    ],
)
def test_python_raises_input_errors(call):
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_arrays_are_checked_too():
    import numpy as np

    for bad in ([], [0.0], [1.5], [np.nan], [np.inf], [1e16]):
        with pytest.raises(InputError):
            attention(seq=np.array(bad))
    with pytest.raises(InputError, match="divide"):
        attention(seq=8, heads=np.array([8.0, 9.0]), kv_heads=4)
    with pytest.raises(InputError, match="one number"):
        attention(seq=8, head_dim=np.array([64.0, 128.0]))


# --- output that fails -----------------------------------------------------------------------------------


def process(*arguments, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 60} | options
    return subprocess.run([sys.executable, "-m", "iomodel", *arguments], check=False, **options)


def test_a_full_disk(iomodel_run, tmp_path):
    with open("/dev/full", "w") as full:
        done = process(*SHORT, stdout=full)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr
    ran = iomodel_run(*SHORT, "--output", "/dev/full")
    assert (ran.code, ran.out) == (1, "")
    assert "No space left" in ran.err


def test_a_closed_output():
    done = subprocess.run(
        f"{sys.executable} -m iomodel attention --seq 1024 >&-",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_closed_input():
    done = subprocess.run(
        f"{sys.executable} -m iomodel attention --cases - <&-",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away():
    """`iomodel ... | head -1`: quiet."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        done = process(*SHORT, stdout=pipe)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_output_places(iomodel_run, tmp_path):
    refused(iomodel_run(*SHORT, "--output", tmp_path), "directory")
    ran = iomodel_run(*SHORT, "--output", tmp_path / "no" / "such" / "folder.txt")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1


# --- terminals and languages -----------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["20", "0", "abc", "-5", "", "1", "500", "\u0661\u0662"])
def test_widths(iomodel_run, monkeypatch, columns):
    """No crash, and no number cut: every figure of the table is in the narrow rows too."""
    monkeypatch.setenv("COLUMNS", "80")
    usual = iomodel_run(*SHORT).out
    monkeypatch.setenv("COLUMNS", columns)
    ran = iomodel_run(*SHORT)
    assert ran.code == 0
    row = next(line for line in usual.splitlines() if line.split()[:1] == ["io-lower-bound"])
    for figure in row.split()[2:]:
        assert figure in ran.out.split(), (figure, ran.out)


@pytest.mark.parametrize(
    "language",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
        {"LC_NUMERIC": "de_DE.UTF-8"},
    ],
)
def test_languages(language):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONIO", "PYTHONUTF8"))}
    for shape in ("table", "csv"):
        done = process(*SHORT, "--format", shape, env=env | language)
        assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].count(",") == done.stdout.splitlines()[0].count(",")


def test_help_and_version(iomodel_run):
    assert iomodel_run("--help").code == 0
    assert "attention" in iomodel_run("--help").out
    assert iomodel_run("--version").out.startswith("iomodel 0.")
    assert "--kv-heads" in iomodel_run("attention", "--help").out
    bare = iomodel_run()
    assert bare.code in (0, 2)
    assert "attention" in bare.out + bare.err
