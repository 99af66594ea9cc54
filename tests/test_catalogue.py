"""The shipped profiles: each loads, lints clean, and agrees with what vendors publish."""

from __future__ import annotations

import re

import pytest

from iomodel.catalogue import configs_folder, load_profile
from iomodel.lint import lint
from iomodel.yamlfile import read_text, read_yaml

GPUS = sorted(configs_folder("gpus").glob("*.yaml"))
FAMILIES = sorted(configs_folder("families").glob("*.yaml"))

#: name -> SMs, tensor clock in MHz, dense 16-bit FLOP per SM and clock. Typed from NVIDIA's architecture
#: whitepapers: tensor cores per SM x FMA per tensor core x 2 (V100 8 x 64, A100 4 x 256, GA102 and AD102
#: 4 x 128, H100 4 x 512, Blackwell 4 x 1024), and from the datasheets' boost clocks.
WHITEPAPER = {
    "v100-sxm2-32gb": (80, 1530, 8 * 64 * 2),
    "t4": (40, 1590, 8 * 64 * 2),
    "a100-sxm-40gb": (108, 1410, 4 * 256 * 2),
    "a100-sxm-80gb": (108, 1410, 4 * 256 * 2),
    "a100-pcie-80gb": (108, 1410, 4 * 256 * 2),
    "a10": (72, 1695, 4 * 128 * 2),
    "a40": (84, 1740, 4 * 128 * 2),
    "rtx-a6000": (84, 1800, 4 * 128 * 2),
    "l4": (58, 2040, 4 * 128 * 2),
    "l40s": (142, 2520, 4 * 128 * 2),
    "h100-sxm": (132, 1830, 4 * 512 * 2),
    "h100-pcie": (114, 1620, 4 * 512 * 2),
    "h200": (132, 1830, 4 * 512 * 2),
    "gh200-96gb": (132, 1830, 4 * 512 * 2),
    "b200": (148, 1835, 4 * 1024 * 2),
    "b300": (148, 1835, 4 * 1024 * 2),
    "jetson-agx-orin-64gb": (16, 1300, 4 * 256 * 2),
    "dgx-spark": (48, 2523, 4 * 128 * 2),
    "rtx-pro-6000": (188, 2617, 4 * 128 * 2),
}

#: GeForce: the full rate of the chip; accumulation in fp32 has half of it.
GEFORCE = {
    "rtx-3090": (82, 1695, 4 * 128 * 2),
    "rtx-4090": (128, 2520, 4 * 128 * 2),
    "rtx-5090": (170, 2407, 4 * 128 * 2),
}

#: Rows where the arithmetic does not hold: published over SMs x clock x FLOP, and why.
EXCEPTIONS = {
    "h20": (148e12 / (78 * 1830e6 * 4096), "matrix units limited for export"),
    "gb200": (2500e12 / (152 * 1926e6 * 8192), "rated at a higher clock than the tensor clock of the device"),
    "gb300": (2500e12 / (152 * 1933e6 * 8192), "rated at a higher clock than the tensor clock of the device"),
    "h100-nvl": (
        835.5e12 / (132 * 1785e6 * 4096),
        "the rating is limited by power, far below the boost clock",
    ),
}


def sixteen_bit(name: str) -> float:
    profile = load_profile(name)
    return float(profile.rate("matmul:bf16" if "compute.matmul:bf16" in profile else "matmul:fp16"))


@pytest.mark.parametrize("file", GPUS, ids=lambda file: file.stem)
def test_every_profile_loads_and_lints_clean(file):
    profile = load_profile(file)
    assert profile.name == file.stem
    assert profile.vendor
    assert profile.title != profile.name
    assert "memory.capacity" in profile
    assert profile.dtypes()
    assert [str(finding) for finding in lint(file)] == []


def test_the_devices_that_people_compare_are_there():
    assert len(GPUS) >= 50
    for alias, name in {
        "h100": "h100-sxm",
        "h200-sxm": "h200",
        "a100": "a100-sxm-80gb",
        "b200-sxm": "b200",
        "4090": "rtx-4090",
        "gh200": "gh200-96gb",
        "v100": "v100-sxm2-32gb",
        "mi300x": "mi300x",
        "tpu-7x": "tpu-v7",
        "a100-sxm4-40gb": "a100-sxm-40gb",
    }.items():
        assert load_profile(alias).name == name


def test_names_and_aliases_are_unique_over_the_catalogue():
    owner: dict[str, str] = {}
    for file in GPUS:
        name = file.stem
        for key in [name, *(str(alias) for alias in read_yaml(file).data["aliases"])]:
            assert key == key.lower()
            assert owner.setdefault(key, name) == name, f"{key} means both {owner[key]} and {name}"


@pytest.mark.parametrize("name", WHITEPAPER)
def test_peak_is_sms_by_tensor_clock_by_flop_per_clock(name):
    sms, mhz, flop = WHITEPAPER[name]
    assert sixteen_bit(name) == pytest.approx(sms * mhz * 1e6 * flop, rel=0.02)
    profile = load_profile(name)
    assert profile["sm.count"] == sms
    assert profile["sm.clock"] == pytest.approx(mhz * 1e6, rel=1e-3)
    assert profile["sm.matmul_per_clock"] == flop


@pytest.mark.parametrize("name", GEFORCE)
def test_geforce_accumulates_in_fp32_at_half_rate(name):
    sms, mhz, flop = GEFORCE[name]
    assert sixteen_bit(name) == pytest.approx(sms * mhz * 1e6 * flop / 2, rel=0.02)
    assert load_profile(name).rate("matmul:fp16") == sixteen_bit(name)


def test_every_nvidia_row_is_checked_or_an_exception_with_its_reason():
    nvidia = {file.stem for file in GPUS if load_profile(file).vendor == "NVIDIA"}
    assert nvidia == {*WHITEPAPER, *GEFORCE, *EXCEPTIONS}
    for name, (ratio, reason) in EXCEPTIONS.items():
        assert abs(ratio - 1) > 0.02, f"{name} is no exception any more: {reason}"


def test_the_tensor_clock_of_hopper_is_below_its_vector_clock():
    h100 = load_profile("h100-sxm")
    assert (h100["sm.clock"], h100["sm.vector_clock"]) == (1.83e9, 1.98e9)
    # 132 SMs x 128 lanes x 2 x 1.98 GHz, the datasheet's 67
    assert h100.rate("vector:fp32") == pytest.approx(66.9e12, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "ridge"),
    [("a100-sxm-40gb", 200.6), ("a100-sxm-80gb", 153.0), ("h100-sxm", 295.3)],
)
def test_ridge_points(name, ridge):
    # 312 / 1.555, 312 / 2.039, 989.4 / 3.35
    assert load_profile(name).ridge_point("bf16") == pytest.approx(ridge, abs=0.05)


@pytest.mark.parametrize(
    ("name", "key", "amount"),
    [
        ("h100-sxm", "memory.hbm", 3.35e12),
        ("h100-sxm", "memory.capacity", 80e9),
        ("h100-sxm", "memory.l2", 52428800),
        ("h100-sxm", "sm.shared_memory", 232448),
        ("h100-sxm", "compute.matmul:fp8", 1978.9e12),
        ("h200", "memory.hbm", 4.8e12),
        ("h200", "memory.capacity", 141e9),
        ("h200", "memory.l2", 62914560),
        ("a100-sxm-80gb", "memory.hbm", 2.039e12),
        ("a100-sxm-80gb", "memory.l2", 41943040),
        ("a100-sxm-80gb", "sm.shared_memory", 166912),
        ("b200", "memory.hbm", 7.7e12),
        ("b200", "compute.matmul:bf16", 2250e12),
        ("l40s", "memory.l2", 100663296),
        ("rtx-4090", "memory.hbm", 1.008e12),
        ("rtx-4090", "memory.l2", 75497472),
        ("mi300x", "memory.hbm", 5.3e12),
        ("mi300x", "memory.capacity", 192e9),
        ("tpu-v5e", "compute.matmul:int8", 394e12),
        ("gaudi3", "memory.hbm", 3.67e12),
        ("epyc-9654", "memory.hbm", 460.8e9),
    ],
)
def test_published_values(name, key, amount):
    assert load_profile(name)[key] == pytest.approx(amount, rel=1e-12)


def test_a_package_is_two_of_its_dies():
    package, die = load_profile("mi250x"), load_profile("mi250x-gcd")
    for key in [
        "memory.capacity",
        "memory.l2",
        "sm.count",
        *(k for k in die.values if k.startswith("compute.")),
    ]:
        assert package[key] == 2 * die[key], key
    assert package["memory.hbm"] == pytest.approx(2 * die["memory.hbm"], rel=1e-3)


def test_what_blackwell_ultra_gives_up_and_gains():
    b200, b300 = load_profile("b200"), load_profile("b300")
    assert b300.rate("matmul:int8") < b200.rate("matmul:int8") / 25
    assert b300.rate("matmul:fp64") < b200.rate("matmul:fp64") / 25
    assert b300.rate("matmul:fp4") > 1.5 * b200.rate("matmul:fp4")
    assert b300["sm.exp_per_clock"] == 2 * b200["sm.exp_per_clock"]


def test_mxfp4_of_mi355x_is_not_halved():
    # 256 CUs x 2.4 GHz x 16384 FLOP: four times bf16, with no sparse mode above it
    assert load_profile("mi355x").rate("matmul:mxfp4") == pytest.approx(256 * 2.4e9 * 16384, rel=0.001)


@pytest.mark.parametrize(
    ("name", "key", "called"),
    [
        ("mi300x", "memory.l2", "Infinity Cache (MALL)"),
        ("tpu-v5p", "sm.shared_memory", "VMEM"),
        ("tpu-v4", "memory.l2", "CMEM"),
        ("gaudi3", "memory.l2", "SRAM"),
        ("m1-ultra", "memory.l2", "system level cache"),
        ("trainium2", "sm.shared_memory", "SBUF"),
        ("epyc-9654", "memory.l2", "L3"),
    ],
)
def test_levels_go_by_role_and_keep_the_vendors_name(name, key, called):
    assert load_profile(name).values[key].called == called


@pytest.mark.parametrize(("name", "said"), [("b200", "8.0"), ("h100-pcie", "2.039")])
def test_disputed_bandwidths_carry_both_values(name, said):
    note = load_profile(name).values["memory.hbm"].note
    assert note.startswith("disputed")
    assert said in note


@pytest.mark.parametrize("file", [*GPUS, *FAMILIES], ids=lambda file: file.stem)
def test_sources_name_what_a_user_can_find(file):
    text = read_text(file)
    assert not re.search(r"RECALLED|find_string|read_file|corpus|/work\b|\.\./shared|this session|\bTODO\b", text)


@pytest.mark.parametrize("file", FAMILIES, ids=lambda file: file.stem)
def test_every_family_leads_to_generic(file):
    seen = [file.stem]
    while like := read_yaml(configs_folder("families") / f"{seen[-1]}.yaml").data.get("like"):
        assert like not in seen
        seen.append(like)
    assert seen[-1] == "generic"


def test_launch_costs_come_from_the_family_and_say_so():
    profile = load_profile("mi300x")
    assert profile["launch.eager"] == pytest.approx(6.2e-6)
    assert profile.assumed["launch.eager"] == "generic"
    assert "H200" in profile.values["launch.eager"].source
    assert "memory.hbm" not in profile.assumed


def test_a_profile_of_ones_own_takes_the_family_of_the_shipped_one_of_its_name(tmp_path):
    """The profile that the command line's reference shows: no architecture, device facts and launches bare."""
    text = """
name: {name}
memory:   {{hbm: {{value: 3.35 TB/s, source: "datasheet"}}, l2: {{value: 50 MB, source: "datasheet"}}}}
compute:  {{"matmul:bf16": {{value: 989.4 TFLOP/s, source: "dense; published with sparsity as 1979"}}}}
sm:       {{count: 132, shared_memory: 227 KiB, registers: 256 KiB, max_threads: 2048, clock: 1.83 GHz}}
launch:   {{eager: 6.2 us, stream: 3.3 us, graph: 0.9 us}}
"""
    found = {}
    for name in ("h100-sxm", "my-card"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text.format(name=name))
        found[name] = load_profile(file)
    assert {name: profile.architecture for name, profile in found.items()} == {
        "h100-sxm": "hopper",
        "my-card": "generic",
    }
    assert found["my-card"]["sm.count"] == 132
    assert found["my-card"]["launch.graph"] == 0.9e-6
