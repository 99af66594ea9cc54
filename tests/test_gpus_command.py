"""`iomodel gpus`: list, show, side by side, lint, new, from-ncu, and the page made from the same profiles."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from iomodel import catalogue, yamlfile
from iomodel.cli.app import run

ROOT = Path(__file__).parent.parent
FOREIGN = ROOT / "tests" / "data" / "foreign_profiles"
EXPORT = ROOT / "tests" / "data" / "ncu" / "h200_device_attributes.csv"
SHIPPED = sorted(file.stem for file in (ROOT / "configs" / "gpus").glob("*.yaml"))

MINE = """\
name: my-gpu
vendor: Acme
architecture: hopper
memory:
  hbm: {value: 2 TB/s, source: datasheet}
  capacity: {value: 48 GB, source: datasheet}
  l2: {value: 50 MiB, source: datasheet}
  l2_bandwidth: {value: 8 TB/s, source: datasheet}
compute:
  "matmul:bf16": {value: 500 TFLOP/s, source: datasheet}
  "vector:fp32": {value: 60 TFLOP/s, source: datasheet}
sm: {source: whitepaper, count: 100, lanes: 128, clock: 1.8 GHz, exp_per_clock: 16, shared_memory: 227 KiB}
"""

#: An H100 with the rates that its datasheet prints with sparsity.
SPARSE = MINE.replace("my-gpu", "my-h100").replace("2 TB/s", "3.35 TB/s").replace("500 ", "1979 ")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """80 columns, no profiles of whoever runs the tests, and a folder to write into."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("IOMODEL_CONFIGS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def gpus(capsys):
    """Run `iomodel gpus ...`: (exit code, stdout, stderr)."""

    def call(*words, command="gpus"):
        capsys.readouterr()
        code = run([command, *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def refused(result):
    """The one line of an input error: exit 2, nothing on stdout, no traceback."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("iomodel: ")
    assert err.count("\n") == 1
    return err


def lines_of(text):
    """First word -> the words of a table's rows, joined over the parts that a wide table is cut into."""
    found = {}
    for line in text.splitlines():
        words = line.removeprefix(">").split()
        if words:
            found.setdefault(words[0], []).extend(words[1:])
    return found


def own_folder(monkeypatch, tmp_path, **files):
    folder = tmp_path / "profiles"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name.replace('_', '-')}.yaml").write_text(text)
    monkeypatch.setenv("IOMODEL_CONFIGS", str(folder))
    return folder


# list


def test_bare_gpus_shows_help(gpus):
    code, out, err = gpus()
    assert (code, err) == (0, "")
    for command in ("list", "show", "lint", "new", "from-ncu"):
        assert re.search(rf"^  {command} +\w", out, re.MULTILINE)
    assert "..." not in out.partition("Commands:")[2]  # no help line is cut


def test_the_list_has_every_profile_and_fits_80_columns(gpus):
    code, out, err = gpus("list")
    assert (code, err) == (0, "")
    rows = lines_of(out)
    assert [name for name in rows if name in SHIPPED] == SHIPPED
    assert max(map(len, out.splitlines())) <= 80
    # datasheets: 3.35 TB/s, 80 GB, 989.4 and 1978.9 dense; 989.4 / 3.35 = 295.3; 50 MiB; 700 W
    assert rows["h100-sxm"] == ["3350", "80", "989.4", "1979", "-", "295.3", "50", "700"]
    # 312 / 1.555 and 312 / 2.039
    assert rows["a100-sxm-40gb"][5] == "200.6"
    assert rows["a100-sxm-80gb"][5] == "153.0"
    # too large for four digits: 256 CUs x 2.4 GHz x 16384
    assert "10066" in rows["mi355x"]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_narrow_list_is_cut_into_parts_and_loses_nothing(gpus, monkeypatch, width):
    wide = gpus("list")[1]
    monkeypatch.setenv("COLUMNS", str(width))
    out = gpus("list")[1]
    assert max(map(len, out.splitlines())) <= width
    rows, wanted = lines_of(out), lines_of(wide)
    assert {name: rows[name] for name in SHIPPED} == {name: wanted[name] for name in SHIPPED}


def listed(out):
    return [name for name in lines_of(out) if name in SHIPPED]


def test_filters(gpus):
    # Instinct boards from 192 GB on: MI300X 192, MI325X 256, MI355X 288; and an EPYC with 768
    assert listed(gpus("list", "--vendor", "amd", "--min-capacity", "192GB")[1]) == [
        "epyc-9654",
        "mi300x",
        "mi325x",
        "mi355x",
    ]
    # 80 GiB is 85.9 GB: above the 80 GB of an H100
    assert "h100-sxm" in listed(gpus("list", "--min-capacity", "80 GB")[1])
    assert "h100-sxm" not in listed(gpus("list", "--min-capacity", "80GiB")[1])
    fp4 = listed(gpus("list", "--dtype", "fp4", "--vendor", "NVIDIA")[1])
    assert {"b200", "b300", "gb200", "gb300", "rtx-5090"} <= set(fp4)
    assert not {"h100-sxm", "a100-sxm-80gb", "rtx-4090"} & set(fp4)
    # stored as mxfp4, multiplied as fp4
    assert listed(gpus("list", "--dtype", "mxfp4", "--vendor", "NVIDIA")[1]) == fp4


def test_a_dtype_gets_its_column_and_ridge_points(gpus):
    out = gpus("list", "--dtype", "int8")[1]
    # 624 TOP/s over 2.039 TB/s = 306.0; A100 bf16 stays beside it
    assert lines_of(out)["a100-sxm-80gb"] == ["2039", "80", "312", "624", "306.0", "40", "400"]
    assert "int8 units" in " ".join(out.split())
    old = lines_of(gpus("list", "--dtype", "fp16")[1])
    # 125 / 0.9: a V100 has no bf16
    assert old["v100-sxm2-32gb"][2:5] == ["-", "125", "138.9"]


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("name", ["a10", "a100-pcie-80gb", "a100-sxm-40gb"]),
        ("hbm", ["gb200", "gb300", "mi355x"]),  # 8 TB/s each, then by name
        ("capacity", ["epyc-9654", "xeon-8480plus"]),  # 768 and 512 GB of DIMMs
        ("bf16", ["mi355x", "gb200", "gb300"]),  # 2516.6, 2500, 2500
        ("fp4", ["gb300", "b300", "mi355x"]),  # 15, 14, 10.07 PFLOP/s
        ("tdp", ["gb300", "mi355x", "gb200"]),  # 1400, 1400, 1200 W
        ("l2", ["max-1550", "epyc-9654"]),  # 408, 384 MiB
        ("ridge", ["tpu-v6e"]),  # 918 / 1.638 = 560
        ("vendor", ["epyc-9654", "mi210"]),  # AMD first
    ],
)
def test_orders(gpus, order, first):
    names = listed(gpus("list", "--sort", order)[1])
    assert names[: len(first)] == first
    assert sorted(names) == SHIPPED  # those without the value come last, none is dropped


def test_csv_and_json_hold_raw_numbers(gpus):
    code, out, err = gpus("list", "--format", "csv", "--vendor", "nvidia")
    assert (code, err) == (0, "")
    rows = {row["gpu"]: row for row in csv.DictReader(io.StringIO(out))}
    h100 = rows["h100-sxm"]
    assert (h100["hbm"], h100["capacity"], h100["l2"]) == ("3350000000000", "80000000000", "52428800")
    assert (h100["matmul:bf16"], h100["vendor"], h100["tdp"]) == ("989400000000000", "NVIDIA", "700")
    assert float(h100["ridge:bf16"]) == pytest.approx(989.4 / 3.35, rel=1e-12)
    assert rows["a100-sxm-80gb"]["matmul:fp8"] == ""
    document = json.loads(gpus("list", "--format", "json", "--min-capacity", "600GB")[1])
    assert document["command"] == "gpus list"
    assert document["inputs"] == {"min_capacity": "600GB", "sort": "name"}
    (epyc,) = document["results"]
    assert (epyc["gpu"], epyc["hbm"], epyc["matmul:fp8"]) == ("epyc-9654", 460800000000, None)


def test_markdown_and_output(gpus, tmp_path):
    table = gpus("list", "--format", "markdown", "--vendor", "google")[1]
    assert "| tpu-v5e | 819 | 16 | 197 |" in table
    file = tmp_path / "list.md"
    assert gpus("list", "--format", "markdown", "--vendor", "google", "--output", str(file)) == (0, "", "")
    assert file.read_text() == table
    assert gpus("list", "--output", str(tmp_path / "list.txt")) == (0, "", "")
    assert (tmp_path / "list.txt").read_text() == gpus("list")[1]


def test_nothing_found_is_no_mistake(gpus):
    assert gpus("list", "--min-capacity", "10 TB") == (0, "", "iomodel: no profile passes these filters\n")
    code, out, _ = gpus("list", "--min-capacity", "10 TB", "--format", "csv")
    assert code == 0
    assert out.startswith("gpu,vendor,")
    assert out.count("\n") == 1
    assert json.loads(gpus("list", "--dtype", "int4", "--format", "json")[1])["results"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--vendor", "nvidai"], "did you mean 'nvidia'"),
        (["list", "--min-capacity", "80"], "--min-capacity: '80' has no unit"),
        (["list", "--min-capacity", "80GB/s"], "does not measure bytes"),
        (["list", "--min-capacity", "-1GB"], "not negative"),
        (["list", "--dtype", "fp9"], "--dtype: unknown dtype 'fp9'"),
        (["list", "--sort", "hmb"], "did you mean 'hbm'"),
        (["list", "--format", "xml"], "--format: unknown format 'xml'"),
        (["list", "extra"], "extra"),
        (["list", "--nope"], "--nope"),
        (["lst"], "did you mean 'list'"),
        (["show"], "NAME"),
        (["show", "h101"], "did you mean 'h100'"),
        (["show", "h100,,h200"], "an empty name"),
        (["show", "z*"], "unknown GPU 'z*'"),
        (["show", "./nothing.yaml"], "nothing.yaml: No such file"),
        (["show", "h100", "--format", "xml"], "unknown format"),
        (["lint"], "FILE"),
        (["lint", "nothing.yaml"], "nothing.yaml: No such file"),
        (["lint", "."], "is a directory"),
        (["new"], "NAME"),
        (["new", "My GPU"], "small letters"),
        (["new", "../up"], "small letters"),
        (["new", "mine.yaml"], "write the name, mine"),
        (["new", "mine", "--from", "h101"], "unknown GPU"),
        (["new", "mine", "--output", "."], "is a directory"),
        (["from-ncu"], "FILE"),
        (["from-ncu", "nothing.csv"], "nothing.csv: No such file"),
    ],
)
def test_wrong_input_is_one_line(gpus, words, said):
    assert said in refused(gpus(*words))
    assert list(Path.cwd().iterdir()) == []


# a user's own folders


def test_own_profiles_are_listed_marked_and_win(gpus, monkeypatch, tmp_path):
    own_folder(monkeypatch, tmp_path, mine=MINE, h200=MINE.replace("my-gpu", "h200"))
    out = gpus("list", "--sort", "name")[1]
    assert re.search(r"^> mine ", out, re.MULTILINE)
    assert re.search(r"^> h200 +2000 ", out, re.MULTILINE)
    assert re.search(r"^  h100-sxm ", out, re.MULTILINE)
    assert "profile of your own" in " ".join(out.split())
    assert "mine" in lines_of(gpus("list", "--vendor", "acme")[1])
    # 500 TFLOP/s / 2 TB/s
    assert "250.0" in gpus("show", "mine")[1]
    assert "2 TB/s" in gpus("show", "h200")[1]


def test_the_platform_s_config_folder_is_read_too(gpus, tmp_path):
    folder = tmp_path / "config" / "iomodel" / "gpus"
    folder.mkdir(parents=True)
    (folder / "h100-sxm.yaml").write_text(MINE.replace("my-gpu", "h100-sxm"))
    assert lines_of(gpus("list")[1])["h100-sxm"][0] == "2000"
    assert "2 TB/s" in gpus("show", "h100-sxm")[1]
    assert "2 TB/s" in gpus("show", "h100")[1]  # by an alias of the shipped one


def test_a_broken_profile_in_an_own_folder_is_named(gpus, monkeypatch, tmp_path):
    own_folder(monkeypatch, tmp_path, bad=MINE.replace("2 TB/s", "2 TB"))
    assert "bad.yaml:5: memory.hbm" in refused(gpus("list"))


@pytest.mark.parametrize("value", ["~no-such-user/x", "/no/such/folder", ":"])
def test_odd_folders_do_no_harm(gpus, monkeypatch, value):
    monkeypatch.setenv("IOMODEL_CONFIGS", value)
    assert gpus("list")[0] == 0


# show


def test_show_has_every_value_with_its_source(gpus):
    code, out, err = gpus("show", "h100")
    assert (code, err) == (0, "")
    profile = catalogue.load_profile("h100-sxm")
    flat = " ".join(out.split())
    for key, value in profile.values.items():
        assert re.search(rf"^  {re.escape(key.partition('.')[2])} ", out, re.MULTILINE), key
        assert " ".join(value.source.split()) in flat
        assert " ".join(value.note.split()) in flat
    assert out.startswith("h100-sxm: H100 SXM5 80GB (NVIDIA, hopper)\nalso called h100, ")
    assert re.search(r"^  hbm +3\.35 TB/s +\[1\] HBM3; ", out, re.MULTILINE)
    assert re.search(r"^  matmul:int8 +1978\.9 TOP/s ", out, re.MULTILINE)
    assert "Two clocks" in out


def test_show_says_which_values_come_from_the_family(gpus):
    out = gpus("show", "mi300x")[1]
    assert re.search(r"^  eager +6\.2 us +\[\d+\] generic family; ", out, re.MULTILINE)
    assert not re.search(r"^  hbm .*family", out, re.MULTILINE)


def test_show_has_ridge_points_per_dtype_and_level(gpus):
    h100 = lines_of(gpus("show", "h100-sxm")[1].partition("\nmemory\n")[0])
    # 989.4 / 3.35 and 989.4 / 7.8; 1978.9 / 3.35 and / 7.8; 66.9 / 3.35 and / 7.8
    assert h100["matmul:bf16"] == ["989.4", "295.3", "126.8"]
    assert h100["matmul:fp8"] == ["1979", "590.7", "253.7"]
    assert h100["vector:fp32"] == ["66.9", "20.0", "8.58"]
    # no L2 bandwidth is published: one level
    a100 = gpus("show", "a100-sxm-40gb")[1].partition("\nmemory\n")[0]
    assert "200.6" in lines_of(a100)["matmul:bf16"]
    v5e = gpus("show", "tpu-v5e")[1].partition("\nmemory\n")[0]
    assert lines_of(v5e)["matmul:bf16"] == ["197", "240.5"]  # 197 / 0.819
    assert "L2" not in v5e


@pytest.mark.parametrize("width", [80, 40])
def test_show_fits(gpus, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for name in SHIPPED:
        code, out, _ = gpus("show", name)
        assert code == 0
        for line in out.splitlines():
            # longer only where the path of a source is, which is not broken
            assert len(line) <= width or len(line.split()) == 1, (name, line)


def test_a_profile_with_bandwidth_alone_can_be_shown(gpus):
    Path("least.yaml").write_text("name: least\nmemory:\n  hbm: {value: 1 TB/s, source: a\n      b}\n")
    code, out, _ = gpus("show", "least.yaml")
    assert code == 0
    assert "ridge" not in out
    assert "[1] a b\n" in out


def test_show_as_json_csv_and_markdown(gpus):
    document = json.loads(gpus("show", "h100", "--format", "json")[1])
    (one,) = document["results"]
    assert one["gpu"] == "h100-sxm"
    assert one["aliases"][0] == "h100"
    hbm = one["values"]["memory.hbm"]
    assert (hbm["value"], hbm["unit"], hbm["called"], hbm["family"]) == (3.35e12, "bytes/s", "HBM3", None)
    assert hbm["source"].startswith("github.com/")
    assert one["values"]["launch.eager"]["family"] == "generic"
    assert one["ridge_points"]["l2"]["matmul:bf16"] == pytest.approx(989.4 / 7.8, rel=1e-12)
    rows = list(csv.DictReader(io.StringIO(gpus("show", "h100", "--format", "csv")[1])))
    assert {row["key"] for row in rows} == set(one["values"])
    eager = next(row for row in rows if row["key"] == "launch.eager")
    assert (float(eager["value"]), eager["unit"], eager["family"]) == (6.2e-6, "s", "generic")
    table = gpus("show", "h100", "--format", "markdown")[1]
    assert "| matmul:bf16 | 989.4 | 295.3 | 126.8 |" in table
    assert "| memory.hbm | 3.35 TB/s | own |" in table


def test_side_by_side_with_ratios_to_the_first(gpus):
    code, out, err = gpus("show", "a100-sxm-80gb,h100,h200,b200")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    rows = {line[2:20].strip(): line[20:].split() for line in out.splitlines()}
    assert out.splitlines()[0].split()[4:] == ["a100-sxm-80gb", "h100-sxm", "h200", "b200"]
    # 3.35 / 2.039 = 1.643, 4.8 / 2.039 = 2.354, 7.7 / 2.039 = 3.776
    assert rows["DRAM GB/s"] == ["2039", "3350", "1.64x", "4800", "2.35x", "7700", "3.78x"]
    # 989.4 / 312 = 3.171, 2250 / 312 = 7.21
    assert rows["bf16 TFLOP/s"] == ["312", "989.4", "3.17x", "989.4", "3.17x", "2250", "7.21x"]
    # 80, 80, 141, 180
    assert rows["capacity GB"] == ["80", "80", "1.00x", "141", "1.76x", "180", "2.25x"]
    # an A100 has no fp8: nothing to divide by
    assert rows["fp8 TFLOP/s"] == ["-", "1979", "1979", "4500"]
    assert rows["ridge bf16 DRAM"][:3] == ["153.0", "295.3", "1.93x"]
    assert rows["int8 TOP/s"][0] == "624"
    assert "fp32 TFLOP/s" not in rows  # no matrix units for fp32 on any of them


def test_arguments_commas_and_patterns_name_the_same(gpus):
    assert gpus("show", "h100", "h200") == gpus("show", "h100-sxm,h200")
    assert gpus("show", "H2*") == gpus("show", "h20,h200")
    assert gpus("show", "h100,h100-sxm")[1] == gpus("show", "h100")[1]


@pytest.mark.parametrize("width", [80, 40])
def test_many_gpus_side_by_side_fit(gpus, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = gpus("show", "*")
    assert code == 0
    assert max(map(len, out.splitlines())) <= width
    assert all(name in out for name in SHIPPED)


def test_side_by_side_in_other_formats(gpus):
    one, two = json.loads(gpus("show", "a100-sxm-80gb,h200", "--format", "json")[1])["results"]
    assert one["values"]["memory.hbm"]["vs_first"] == 1
    assert two["values"]["memory.hbm"]["vs_first"] == pytest.approx(4.8 / 2.039, rel=1e-12)
    rows = list(csv.DictReader(io.StringIO(gpus("show", "a100-sxm-80gb,h200", "--format", "csv")[1])))
    assert {row["gpu"] for row in rows} == {"a100-sxm-80gb", "h200"}
    assert "| DRAM GB/s | " in gpus("show", "a100-sxm-80gb,h200", "--format", "markdown")[1]


def test_two_profiles_of_one_name_are_not_silently_one(gpus):
    Path("a.yaml").write_text(MINE)
    Path("b.yaml").write_text(MINE.replace("2 TB/s", "3 TB/s"))
    assert "two different profiles are named my-gpu" in refused(gpus("show", "a.yaml", "b.yaml"))
    Path("c.yaml").write_text(MINE)
    assert gpus("show", "a.yaml,c.yaml")[0] == 0


def test_a_profile_edited_while_python_runs_is_read_again(gpus):
    Path("a.yaml").write_text(MINE)
    assert "2 TB/s" in gpus("show", "a.yaml")[1]
    Path("a.yaml").write_text(MINE.replace("2 TB/s", "2.5 TB/s"))
    assert "2.5 TB/s" in gpus("show", "a.yaml")[1]


# lint, new, from-ncu


def test_lint_says_file_line_level(gpus):
    Path("mine.yaml").write_text(SPARSE)
    code, out, err = gpus("lint", "mine.yaml")
    assert (code, err) == (0, "")  # a doubt, no error
    assert re.match(r"mine\.yaml:10: warning: compute\.matmul:bf16: 1\.98 PFLOP/s .*2:4-sparse", out)
    Path("worse.yaml").write_text(MINE.replace("2 TB/s", "2 GB/s").replace("48 GB", "48 GiB"))
    code, out, err = gpus("lint", "worse.yaml")
    assert (code, err) == (2, "")
    assert [line.split(": ")[0] for line in out.splitlines()][:2] == ["worse.yaml:5", "worse.yaml:6"]
    assert all(re.match(r"worse\.yaml:\d+: (error|warning): ", line) for line in out.splitlines())


def test_lint_of_a_clean_file_is_silent_on_stdout(gpus):
    file = str(ROOT / "configs" / "gpus" / "h200.yaml")
    assert gpus("lint", file) == (0, "", f"iomodel: {file}: nothing found\n")


def test_lint_of_several_files(gpus):
    Path("a.yaml").write_text(MINE)
    foreign = str(FOREIGN / "calculon_a100_80g.json")
    code, out, err = gpus("lint", "a.yaml", foreign)
    assert code == 2
    assert "a.yaml: nothing found" in err
    assert out.startswith(f"{foreign}:1: error: this looks like a calculon system file")
    assert out.count("\n") == 1
    refused(gpus("lint", foreign, "nothing.yaml"))


def test_new_writes_a_profile_that_loads(gpus):
    code, out, err = gpus("new", "my-h200", "--from", "h200")
    assert (code, out) == (0, "")
    assert err == "iomodel: wrote my-h200.yaml; fill in what differs, then: iomodel gpus lint my-h200.yaml\n"
    profile = catalogue.load_profile("./my-h200.yaml")
    assert (profile.name, profile["memory.hbm"]) == ("my-h200", 4.8e12)
    code, out, _ = gpus("lint", "my-h200.yaml")
    assert code == 0
    assert "the source is still to fill in" in out
    assert list(Path.cwd().iterdir()) == [Path.cwd() / "my-h200.yaml"]  # no temporary file is left


def test_new_never_overwrites(gpus):
    Path("mine.yaml").write_text("precious")
    assert "mine.yaml: exists already" in refused(gpus("new", "mine"))
    assert "mine.yaml: exists already" in refused(gpus("new", "other", "--output", "mine.yaml"))
    assert Path("mine.yaml").read_text() == "precious"
    assert gpus("new", "mine", "--output", "elsewhere.yaml")[0] == 0
    assert catalogue.load_profile("./elsewhere.yaml").name == "mine"


def test_new_where_nothing_can_be_written(gpus):
    code, out, err = gpus("new", "mine", "--output", "no/such/folder/mine.yaml")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1


def test_from_ncu(gpus):
    code, out, err = gpus("from-ncu", str(EXPORT))
    assert (code, err) == (0, "")
    Path("made.yaml").write_text(out)
    # 6016 bits / 8 x 2 x 3.201 GHz
    assert catalogue.load_profile("./made.yaml")["memory.hbm"] == pytest.approx(4.814304e12, rel=1e-12)
    assert gpus("from-ncu", str(EXPORT), "--output", "again.yaml") == (0, "", "")
    assert Path("again.yaml").read_text() == out
    Path("other.csv").write_text("a,b\n1,2\n")
    assert "does not describe the GPU" in refused(gpus("from-ncu", "other.csv"))


# analysing commands warn of doubtful files

GEMM = ("--m", "4096", "--n", "4096", "--k", "4096")


def test_a_doubtful_file_gives_a_warning_and_an_answer(gpus):
    Path("mine.yaml").write_text(SPARSE)
    code, out, err = gpus(*GEMM, "--gpu", "h100,mine.yaml", command="gemm")
    assert code == 0
    assert "my-h100" in out
    assert err.startswith("iomodel: warning: mine.yaml: compute.matmul:bf16: 1.98 PFLOP/s ")
    assert "iomodel gpus lint mine.yaml" in err
    assert err.count("\n") == 1


def test_what_is_not_doubtful_gives_no_warning(gpus):
    Path("mine.yaml").write_text(SPARSE)
    Path("good.yaml").write_text(MINE)
    for words in (
        ["--gpu", "good.yaml"],
        ["--gpu", "h100"],
        ["--gpu", "mine.yaml", "--set", "matmul:bf16=989.4TFLOP/s"],
    ):
        code, _, err = gpus(*GEMM, *words, command="gemm")
        assert (code, err) == (0, ""), words


def test_a_warning_comes_once_for_many_cases_and_not_before_an_error(gpus):
    Path("mine.yaml").write_text(SPARSE)
    Path("cases.csv").write_text("m,n,k,gpu\n64,64,64,mine.yaml\n64,64,64,h100\n128,128,128,mine.yaml\n")
    code, _, err = gpus("--cases", "cases.csv", command="gemm")
    assert (code, err.count("warning")) == (0, 1)
    refused(gpus("--m", "0", "--n", "1", "--k", "1", "--gpu", "mine.yaml", command="gemm"))


# reading the catalogue is cheap


def test_every_file_is_read_once(gpus, monkeypatch):
    seen = []

    def counted(path):
        seen.append(Path(path).stem)
        return yamlfile.read_yaml(path)

    monkeypatch.setattr(catalogue, "read_yaml", counted)
    catalogue._read_profile.cache_clear()
    catalogue._read_family.cache_clear()
    gpus("list")
    gpus("show", "*")
    assert len(seen) == len(set(seen))
    assert set(SHIPPED) < set(seen)


@pytest.mark.parametrize(
    ("text", "line"), [("a: &x 1\n", 1), ("a: 1\nb: *x\n", 2), ("a: [1, &x 2]\n", 1), ("a:\n  &x b: 1\n", 2)]
)
def test_anchors_are_refused_used_or_not(text, line):
    with pytest.raises(yamlfile.InputError, match=f"file:{line}: anchors and aliases"):
        yamlfile.parse_yaml(text, "file")


def test_the_characters_of_anchors_may_stand_in_text():
    assert yamlfile.parse_yaml('a: R&D * 2\nb: "&x *y"\n', "file").data == {"a": "R&D * 2", "b": "&x *y"}


# the page


def page_maker():
    spec = importlib.util.spec_from_file_location("generate_catalogue", ROOT / "docs" / "generate_catalogue.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_catalogue_is_current():
    made = page_maker().page()
    assert made == (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8"), (
        "run: python docs/generate_catalogue.py"
    )
    assert all(f"| {name} |" in made for name in SHIPPED)
    assert "| h100-sxm | 3350 | 80 | 989.4 | 1979 | - | 295.3 | 50 | 700 |" in made
    # what is disputed is said there
    assert "disputed: HGX B200 datasheet 7.7" in made
    assert "Infinity Cache" in made


def test_the_commands_on_the_page_work(gpus):
    page = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    Path("export.csv").write_bytes(EXPORT.read_bytes())
    commands = [
        shlex.split(line, comments=True)
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(commands) >= 8
    for words in commands:
        assert words[0] == "iomodel"
        code, _, err = gpus(*words[2:], command=words[1])
        assert code == 0, (words, err)
