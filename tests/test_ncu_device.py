"""A profile from the device attributes of a real Nsight Compute export (H200)."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from iomodel.catalogue import load_profile
from iomodel.errors import InputError
from iomodel.importers.ncu_device import profile_from_ncu
from iomodel.lint import lint

EXPORT = Path(__file__).parent / "data" / "ncu" / "h200_device_attributes.csv"
ATTRIBUTE = "device__attribute_"


def edited(tmp_path, changes=None, drop=(), units=None, rows=None, name="export.csv"):
    """The export with cells of some columns changed, columns dropped, or units set."""
    table = list(csv.reader(EXPORT.read_text().splitlines()))
    header = table[0]
    for column, text in (changes or {}).items():
        for row in table[2:]:
            row[header.index(ATTRIBUTE + column)] = text
    for column, unit in (units or {}).items():
        table[1][header.index(ATTRIBUTE + column)] = unit
    keep = [i for i, column in enumerate(header) if column.removeprefix(ATTRIBUTE) not in drop]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([[row[i] for i in keep] for row in table[:rows]])
    file = tmp_path / name
    file.write_text("==PROF== Connected to process 1\n" + out.getvalue())
    return file


def made(tmp_path, export):
    file = tmp_path / "made.yaml"
    file.write_text(profile_from_ncu(export))
    return load_profile(file), lint(file)


def test_the_h200_describes_itself(tmp_path):
    profile, findings = made(tmp_path, EXPORT)
    assert profile.title == "NVIDIA H200"
    assert profile.architecture == "hopper"
    assert profile["sm.count"] == 132
    # 6016 bits / 8 = 752 B, twice a clock of 3.201 GHz: 752 x 6.402e9
    assert profile["memory.hbm"] == pytest.approx(4.814304e12, rel=1e-12)
    assert profile["memory.l2"] == 62914560
    assert profile["memory.capacity"] == 150109880320
    assert profile["sm.shared_memory"] == 232448
    assert profile["sm.registers"] == 65536 * 4
    assert profile["sm.max_threads"] == 2048
    assert profile["sm.vector_clock"] == 1.98e9
    assert findings == []


def test_rates_of_a_known_device_are_copied_and_say_so(tmp_path):
    profile, _ = made(tmp_path, EXPORT)
    assert profile.rate("matmul:bf16") == 989.4e12
    assert profile.values["compute.matmul:bf16"].source.startswith("copied from the catalogue's h200")
    assert profile["sm.clock"] == 1.83e9


def test_rates_of_an_unknown_device_are_derived_and_say_so(tmp_path):
    profile, findings = made(tmp_path, edited(tmp_path, {"display_name": "NVIDIA H300"}))
    # 132 SMs x 1.98 GHz x 4096 FLOP
    assert profile.rate("matmul:bf16") == pytest.approx(1070.5e12, rel=1e-4)
    assert profile.values["compute.matmul:bf16"].source.startswith("DERIVED")
    # 132 SMs x 128 lanes x 2 x 1.98 GHz
    assert profile.rate("vector:fp32") == pytest.approx(66.9e12, rel=1e-3)
    assert "compute.matmul:fp8" not in profile
    assert findings == []


def test_a_name_with_other_numbers_is_not_taken_from_the_catalogue(tmp_path):
    profile, _ = made(tmp_path, edited(tmp_path, {"multiprocessor_count": "66"}))
    assert profile.values["compute.matmul:bf16"].source.startswith("DERIVED: 66 SMs")


def test_a_sibling_with_slower_memory_is_not_taken_for_the_catalogue_s(tmp_path):
    changes = {
        "display_name": "NVIDIA A100-PCIE-40GB",
        "multiprocessor_count": "108",
        "clock_rate": "1,410,000",
    }
    changes |= {"compute_capability_major": "8", "compute_capability_minor": "0"}
    changes |= {"global_memory_bus_width": "5,120", "memory_clock_rate": "1,215,000"}
    profile, _ = made(tmp_path, edited(tmp_path, changes))
    # 5120 / 8 x 2 x 1.215 GHz; the 80 GB board has 1935 GB/s
    assert profile["memory.hbm"] == pytest.approx(1555.2e9)
    assert profile.values["compute.matmul:bf16"].source.startswith("DERIVED: 108 SMs")
    assert profile.rate("matmul:bf16") == pytest.approx(312e12, rel=1e-3)


def test_geforce_is_derived_at_half_rate(tmp_path):
    changes = {
        "display_name": "NVIDIA GeForce RTX 4070",
        "multiprocessor_count": "46",
        "clock_rate": "2,475,000",
    }
    changes |= {"compute_capability_major": "8", "compute_capability_minor": "9"}
    changes |= {"global_memory_bus_width": "192", "memory_clock_rate": "10,501,000"}
    profile, _ = made(tmp_path, edited(tmp_path, changes))
    assert profile.architecture == "ada"
    # 192 / 8 x 2 x 10.501 GHz: the 504 GB/s of the data sheet
    assert profile["memory.hbm"] == pytest.approx(504e9, rel=1e-3)
    # 46 x 2.475 GHz x 512: the 58.3 TFLOP/s of the Ada whitepaper with fp32 accumulation
    assert profile.rate("matmul:fp16") == pytest.approx(58.3e12, rel=2e-3)


def test_old_tensor_cores_have_no_bf16(tmp_path):
    changes = {
        "display_name": "Tesla V100-SXM2-16GB",
        "compute_capability_major": "7",
        "multiprocessor_count": "80",
    }
    profile, _ = made(tmp_path, edited(tmp_path, changes))
    assert profile.dtypes() == ["fp16"]


@pytest.mark.parametrize("text", ["6.016", "6 016", "6016"])
def test_thousands_separators_of_other_locales(tmp_path, text):
    profile, _ = made(tmp_path, edited(tmp_path, {"global_memory_bus_width": text}))
    assert profile["memory.hbm"] == pytest.approx(4.814304e12, rel=1e-12)


def test_scaled_units_are_multiplied_out(tmp_path):
    export = edited(tmp_path, {"l2_cache_size": "62.914560"}, units={"l2_cache_size": "Mbyte"})
    assert made(tmp_path, export)[0]["memory.l2"] == pytest.approx(62914560)


def test_what_the_export_leaves_out_is_left_out(tmp_path):
    profile, _ = made(tmp_path, edited(tmp_path, {"l2_cache_size": "n/a"}, drop=["total_memory"]))
    assert "memory.l2" not in profile
    assert "memory.capacity" not in profile


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"drop": ["memory_clock_rate"]},
            "no column device__attribute_memory_clock_rate; run ncu --set full",
        ),
        ({"changes": {"memory_clock_rate": "n/a"}}, "memory.hbm are empty"),
        ({"changes": {"compute_capability_major": "6"}}, "unknown compute capability '6.0'"),
        ({"rows": 2}, "holds no kernel"),
    ],
)
def test_an_export_that_lacks_something_says_what(tmp_path, arguments, said):
    with pytest.raises(InputError) as error:
        profile_from_ncu(edited(tmp_path, **arguments))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        '"ID","Kernel Name","Metric Name","Metric Value"\n"0","add","dram__bytes.sum","1"\n',
        "==WARNING== No kernels were profiled.\n",
        "",
        "ID;Kernel Name\n0;add\n",
    ],
)
def test_other_exports_say_how_to_make_one(tmp_path, text):
    file = tmp_path / "long.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=r"no device__attribute_\* columns.*--page raw --csv"):
        profile_from_ncu(file)


def test_a_binary_report_says_how_to_export_it(tmp_path):
    file = tmp_path / "report.ncu-rep"
    file.write_bytes(b"NVR\0\xff\xfe")
    with pytest.raises(InputError, match="--page raw --csv"):
        profile_from_ncu(file)


def test_kernels_of_two_gpus_are_refused(tmp_path):
    file = edited(tmp_path)
    text = file.read_text()
    at = text.rindex("NVIDIA H200")
    file.write_text(text[:at] + "NVIDIA H100" + text[at + len("NVIDIA H200") :])
    with pytest.raises(InputError, match="several GPUs"):
        profile_from_ncu(file)
