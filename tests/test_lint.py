"""Lint: one case for each mistake that public hardware tables make."""

from __future__ import annotations

from pathlib import Path

import pytest

from iomodel.catalogue import load_profile
from iomodel.errors import InputError
from iomodel.lint import catalogue_name, lint
from iomodel.newprofile import new_profile

FOREIGN = Path(__file__).parent / "data" / "foreign_profiles"

GOOD = """\
name: my-h100
architecture: hopper
memory:
  hbm: {value: 3.35 TB/s, source: datasheet}
  capacity: {value: 80 GB, source: datasheet}
compute:
  "matmul:bf16": {value: 989.4 TFLOP/s, source: datasheet}
  "matmul:fp8": {value: 1978.9 TFLOP/s, source: datasheet}
sm:
  source: whitepaper
  count: 132
  clock: 1.83 GHz
  matmul_per_clock: 4096 FLOP
"""


def lint_text(tmp_path, text):
    file = tmp_path / "profile.yaml"
    file.write_text(text)
    return lint(file)


def test_a_right_profile_is_clean(tmp_path):
    assert lint_text(tmp_path, GOOD) == []


MISTAKES = {
    "sparse bf16": ("989.4 TFLOP/s", "1979 TFLOP/s", "warning", 7, "2:4-sparse"),
    "sparse fp8": ("1978.9 TFLOP/s", "3958 TFLOP/s", "warning", 8, "2:4-sparse"),
    "GiB for GB": ("80 GB", "80 GiB", "warning", 5, "write 80 GB"),
    "GiB/s": ("3.35 TB/s", "3.35 TiB/s", "warning", 4, "write 3.35 TB/s"),
    "bytes of GiB": ("80 GB", "85899345920 B", "warning", 5, "GiB where the label is GB"),
    "a thousandth": ("3.35 TB/s", "3.35 GB/s", "error", 4, "a wrong prefix"),
    "a thousand times": ("3.35 TB/s", "3350 TB/s", "error", 4, "a wrong prefix"),
    "bits as bytes": ("3.35 TB/s", "26.8 TB/s", "error", 4, "bits for bytes"),
    "an eighth": ("3.35 TB/s", "419 GB/s", "error", 4, "off by 8"),
    "rate off by 1000": ("989.4 TFLOP/s", "989.4 GFLOP/s", "error", 7, "ridge point 0.295"),
    "bits in the unit": ("3.35 TB/s", "26.8 Tb/s", "error", 4, "small b is bits"),
    "no source": ("{value: 3.35 TB/s, source: datasheet}", "3.35 TB/s", "error", 4, "no source"),
    "empty source": ("80 GB, source: datasheet", '80 GB, source: ""', "error", 5, "no source"),
    "source to fill in": (
        "80 GB, source: datasheet",
        "80 GB, source: TODO",
        "warning",
        5,
        "still to fill in",
    ),
    "no unit": ("3.35 TB/s", "2.039e12", "error", 4, "has no unit"),
    "comma in a number": ("3.35 TB/s", '"2,039 GB/s"', "error", 4, "not a quantity"),
    "unit of another kind": ("3.35 TB/s", "2039GB", "error", 4, "does not measure bytes/s"),
    "misspelt unit": ("1.83 GHz", "1.83 ghz", "error", 12, "does not measure Hz"),
    "misspelt key": ("  hbm:", "  hmb:", "error", 4, "did you mean 'hbm'"),
    "misspelt section": ("compute:", "compte:", "error", 6, "did you mean 'compute'"),
    "wrong SM count": ("count: 132", "count: 66", "warning", 7, "2:4-sparse"),
    "wrong clock": ("1.83 GHz", "1.2 GHz", "warning", 7, "one of the four is off"),
    "negative": ("80 GB", "-80 GB", "error", 5, "not negative"),
    "zero": ("80 GB", "0 GB", "error", 5, "above zero"),
    "unknown family": ("architecture: hopper", "architecture: hoper", "error", 2, "did you mean 'hopper'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_found_where_it_stands(tmp_path, name):
    old, new, level, line, said = MISTAKES[name]
    assert GOOD.count(old) == 1
    findings = lint_text(tmp_path, GOOD.replace(old, new))
    hits = [f for f in findings if f.level == level and said in f.text and f.where.endswith(f".yaml:{line}")]
    assert hits, [str(f) for f in findings]


def test_a_sparse_rate_that_only_the_catalogue_shows(tmp_path):
    # the H100's tf32 is 494.7 dense; datasheets print 989
    text = GOOD.replace("sm:", '  "matmul:tf32": {value: 989 TFLOP/s, source: datasheet}\nsm:')
    (finding,) = lint_text(tmp_path, text)
    assert finding.where.endswith(":9")
    assert "2:4-sparse" in finding.text
    assert "495 TFLOP/s" in finding.text


def test_a_sparse_rate_needs_no_catalogue_to_be_seen(tmp_path):
    text = GOOD.replace("my-h100", "x1").replace("989.4", "1979").replace("1978.9", "3958")
    findings = lint_text(tmp_path, text)
    # 132 x 1.83 GHz x 4096 = 989 TFLOP/s
    assert ["989 TFLOP/s dense" in f.text for f in findings] == [True]


def test_a_sparse_8_bit_rate_beside_a_dense_16_bit_one(tmp_path):
    findings = lint_text(tmp_path, GOOD.replace("my-h100", "x1").replace("1978.9", "3958"))
    assert [(f.level, "4 times the bf16 rate" in f.text) for f in findings] == [("warning", True)]


def test_binary_units_are_said_once(tmp_path):
    assert len(lint_text(tmp_path, GOOD.replace("80 GB", "80 GiB"))) == 1


def test_warnings_do_not_stop_a_profile_from_loading(tmp_path):
    file = tmp_path / "h100.yaml"
    file.write_text(GOOD.replace("989.4", "1979"))
    assert {f.level for f in lint(file)} == {"warning"}
    assert load_profile(file).rate("matmul:bf16") == 1979e12


@pytest.mark.parametrize(
    ("name", "hbm", "rate"),
    [("b200", "3.85 TB/s", "1125 TFLOP/s"), ("mi250x", "1.638 TB/s", "191.5 TFLOP/s")],
)
def test_one_die_of_a_package_of_two(tmp_path, name, hbm, rate):
    text = f"""\
name: {name}
memory:
  hbm: {{value: {hbm}, source: a table}}
compute:
  "matmul:bf16": {{value: {rate}, source: a table}}
"""
    findings = lint_text(tmp_path, text)
    assert [f.where.rpartition(":")[2] for f in findings if "one die" in f.text] == ["3", "5"]


def test_memory_cannot_be_read_faster_than_dram_allows(tmp_path):
    # an L4's 300 GB/s as bits: 2.4 TB/s is a plausible bandwidth, but not for 16 GB
    text = GOOD.replace("my-h100", "x1").replace("3.35 TB/s", "2.4 TB/s").replace("80 GB", "16 GB")
    assert any("would take 6.67 ms" in f.text for f in lint_text(tmp_path, text))


def test_all_faults_are_listed_at_once_in_order_of_lines(tmp_path):
    text = GOOD.replace("3.35 TB/s", "3.35").replace("1.83 GHz", "fast").replace("fp8", "fp9")
    assert [f.where.rpartition(":")[2] for f in lint_text(tmp_path, text)] == ["4", "8", "12"]


@pytest.mark.parametrize(
    ("file", "tool", "wanted"),
    [
        ("calculon_a100_80g.json", "calculon system file", "hbm: {value: 2048 GB/s"),
        ("llm-analysis_h100-sxm-80gb.json", "llm-analysis GPU file", '"matmul:fp16": {value: 989 TFLOP/s'),
        ("aiconfigurator_h100_sxm.yaml", "aiconfigurator system file", "hbm: {value: 3.35 TB/s"),
        ("llm-analysis_model_bloom-175b.json", "a model, not a GPU", "iomodel gpus new"),
        ("aiconfigurator_query_versions.yaml", "aiconfigurator version table", "iomodel gpus new"),
        ("aiconfigurator_attention_lane_defaults.yaml", "table of attention kernels", "iomodel gpus new"),
    ],
)
def test_foreign_profiles_are_named_and_translated(file, tool, wanted):
    (finding,) = lint(FOREIGN / file)
    assert finding.level == "error"
    assert tool in finding.text
    assert "memory.hbm" in finding.text.partition("missing: ")[2].partition(";")[0]
    assert wanted in finding.text
    assert "\n" not in str(finding)


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        (
            '{"name": "A100x4", "device": {"frequency_Hz": 1410e6, "compute_chiplet": {"core_count": 108}}}',
            "LLMCompass",
        ),
        ('{"scheduling-policy": "LIFO", "local-mem-bw": 30000000, "peak-perf": 900}', "ASTRA-sim"),
        ('{"model_type": "llama", "hidden_size": 4096}', "iomodel model"),
        ("ops: []\ninputs: {x: [1]}", "iomodel graph"),
        ("- 1\n- 2", "is not an iomodel profile"),
        ("just words", "is not an iomodel profile"),
        ("colour: red", "unknown: colour"),
    ],
)
def test_other_files_are_not_profiles(tmp_path, text, tool):
    (finding,) = lint_text(tmp_path, text)
    assert tool in finding.text


def test_a_calculon_file_that_writes_bytes_as_gib(tmp_path):
    text = '{"matrix": {"x": 1}, "vector": {"x": 1}, "mem1": {"GiB": 80000000000, "GBps": 2039}}'
    assert "capacity: {value: 80 GB" in lint_text(tmp_path, text)[0].text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"name: a\nname: b\n", "duplicate key 'name' (first on line 1)"),
        (b"memory:\n\thbm: 1\n", ":2: tab used for indentation"),
        (b"a: &a [1]\nb: *a\n", "anchors and aliases"),
        (b"[" * 10_000, "nested deeper"),
        (b"\xff\xfen\x00a\x00", "not a UTF-8 text file"),
        (b"\x89PNG\r\n\x1a\n\0", "not a UTF-8 text file"),
    ],
)
def test_unreadable_files_are_one_line_input_errors(tmp_path, content, said):
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError) as error:
        lint(file)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_named_without_its_folder(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(GOOD.replace("architecture: hopper", "architecture: hoper"))
    monkeypatch.chdir(tmp_path)
    (finding,) = lint("mine.yaml")
    assert finding.where == "mine.yaml:2"
    assert finding.text.startswith("unknown architecture 'hoper'")


def test_missing_files_and_directories(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        lint(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="is a directory"):
        lint(tmp_path)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GB10", "dgx-spark"),
        ("my-mi250x-gcd", "mi250x-gcd"),
        ("h1000", None),
    ],
)
def test_device_names_find_their_profile(said, name):
    assert catalogue_name(said) == name


@pytest.mark.parametrize("base", ["h100-sxm", "mi250x-gcd", "tpu-v5e", "xeon-8480plus"])
def test_a_new_profile_loads_with_the_values_of_its_base(tmp_path, base):
    file = tmp_path / "my-thing.yaml"
    file.write_text(new_profile("my-thing", load_profile(base)))
    made, old = load_profile(file), load_profile(base)
    assert made.name == "my-thing"
    # constants that were fitted on the base are not the new GPU's: it gets its family's
    given = {key: value.amount for key, value in old.values.items() if not key.startswith("sustained.")}
    assert {key: made.values[key].amount for key in given} == given
    assert all(key in made.assumed for key in made.values if key.startswith("sustained."))
    findings = lint(file)
    assert {(f.level, "still to fill in" in f.text) for f in findings} == {("warning", True)}
    assert len(findings) == sum(key not in old.assumed for key in given)


def test_a_new_profile_says_what_each_key_is():
    text = new_profile("my-thing", load_profile("h100"))
    assert 'never "with sparsity"' in text
    assert "iomodel gpus lint my-thing.yaml" in text


@pytest.mark.parametrize("name", ["", "My GPU", "../up", "a\nb"])
def test_a_new_profile_needs_a_plain_name(name):
    with pytest.raises(InputError, match="profile name"):
        new_profile(name, load_profile("h100"))
