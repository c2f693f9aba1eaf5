# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compatibility data: each row is of its form, and the rows of all files hold together."""

from __future__ import annotations

import dataclasses
import re
import typing as t

import pytest
import yaml

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import gpu, host, loader, model, version

DATA = loader.load()
RELEASES = list(DATA.releases.values())
VARIANTS = [(release, variant) for release in RELEASES for variant in release.variants.values()]
RELEASE = re.compile(r"\d+\.\d+\.\d+")
#: Sold under the number of the series before.
OF_A_LATER_CHIP = "NVIDIA GeForce RTX 3050 A Laptop GPU"
COMPANION = re.compile(r"(~=)?\d+\.\d+\.\d+")
TAG = re.compile(r"3\.\d{1,2}t?")
DATE = re.compile(r"20\d\d-\d\d(-\d\d)?")


def records() -> t.Iterator[model.Record]:
    """Every row of every file."""
    for field in dataclasses.fields(DATA):
        value = getattr(DATA, field.name)
        rows = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        for row in rows:
            if isinstance(row, model.Record):
                yield row
            if isinstance(row, model.Release):
                yield from row.variants.values()


def test_every_row_says_where_it_was_read():
    rows = list(records())
    assert len(rows) > 400
    for row in rows:
        cells = {field.name for field in dataclasses.fields(row)} | {"aarch64", "x86_64", "published", "from", "below"}
        if isinstance(row, model.Gpu):
            cells |= set(row.details) | {"class"}
        if isinstance(row, model.PackageRow):
            cells |= set(row.lists)
        assert row.source.strip(), row
        assert row.confidence in ("read", "inferred"), row
        assert set(row.inferred) <= cells, (set(row.inferred) - cells, row)


@pytest.mark.parametrize("name", loader.FILES)
def test_a_file_is_of_the_schema_and_has_a_date(name):
    content = loader.read(name)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", content["as_of"])


def test_the_slow_yaml_parser_reads_the_same(monkeypatch):
    fast = {name: loader.read(name) for name in loader.FILES}
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert {name: loader.read(name) for name in loader.FILES} == fast


def test_another_schema_is_refused(tmp_path):
    (tmp_path / "torch.yml").write_text("schema: 2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="schema 1 is needed"):
        loader.read("torch", tmp_path)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_a_release(release):
    assert RELEASE.fullmatch(release.version)
    assert DATE.fullmatch(release.date)
    assert release.requires_python.startswith(">=3.")
    assert release.default in release.variants
    assert release.default_on_aarch64 in ("cpu", *release.variants)
    assert set(release.wheels) == {"x86_64", "aarch64"} == set(release.glibc)
    assert all(TAG.fullmatch(tag) for tags in release.wheels.values() for tag in tags)
    assert release.numpy in ("", "<2")
    assert release.cxx11_abi in (0, 1)
    for companion in (release.torchvision, release.torchaudio, release.triton):
        assert COMPANION.fullmatch(companion), companion
    for pin in release.pins.values():
        assert version.parse(pin)
    default = release.variants[release.default]
    assert (release.pins["cudnn"], release.pins["nccl"]) == (default.cudnn, default.nccl)
    assert release.pins["cuda_runtime"].startswith(default.cuda + ".")


@pytest.mark.parametrize(("release", "variant"), VARIANTS, ids=lambda row: getattr(row, "version", None) or row.name)
def test_a_build_has_a_toolkit_and_pins_and_code_that_it_can_compile(release, variant):
    assert variant.name == "cu" + variant.cuda.replace(".", "")
    toolkit = DATA.toolkits[variant.cuda]
    assert toolkit.published
    assert version.major(variant.cuda) in DATA.majors
    assert version.parse(variant.cudnn) >= (8, 5)
    assert version.parse(variant.nccl) >= (2, 14)
    assert "x86_64" in variant.archs
    for arch, sms in variant.archs.items():
        assert sms and list(sms) == sorted(set(sms)), (arch, sms)
        for sm in sms:
            assert sm in DATA.sass
            capability = version.parse(f"{sm // 10}.{sm % 10}")
            low, high = version.parse(toolkit.cc_min), version.parse(toolkit.cc_max)
            assert low <= capability <= high or sm == 37, (sm, toolkit.version)
    for arch, glibc in variant.glibc.items():
        assert version.parse(glibc) >= version.parse(release.glibc[arch])


def test_releases_and_branches_go_from_old_to_new():
    releases = [version.parse(name) for name in DATA.releases]
    assert releases == sorted(releases)
    assert [row.date for row in RELEASES] == sorted(row.date for row in RELEASES)
    assert list(DATA.branches) == sorted(DATA.branches)
    cuda = [version.parse(row.cuda) for row in DATA.branches.values()]
    assert cuda == sorted(cuda)


@pytest.mark.parametrize("row", DATA.branches.values(), ids=lambda row: str(row.branch))
def test_a_branch(row):
    assert row.kind in ("LTSB", "PB", "NFB")
    assert row.cuda in DATA.toolkits or row.cuda in ("11.0", "11.4")
    assert set(row.flavours) <= {"open", "proprietary"} and row.flavours
    for release in filter(None, (row.first, row.last)):
        assert version.major(release) == row.branch
    if row.first and row.last:
        assert version.parse(row.first) <= version.parse(row.last)
    assert version.parse(row.cc_min) < version.parse(row.cc_max)
    if row.supported:
        assert row.kind != "NFB" and row.eol > DATA.as_of[:7]


def test_what_a_branch_drives_is_what_its_architectures_say():
    """Two tables of the same fact: the windows of branches, and the windows of architectures."""
    for row in DATA.branches.values():
        for arch in DATA.architectures:
            driven = (arch.first_driver or 0) <= row.branch and (not arch.last_driver or row.branch <= arch.last_driver)
            newest = arch.high[:1] if arch.name == "Blackwell" else arch.low
            inside = version.parse(row.cc_min) < arch.high and newest <= (*version.parse(row.cc_max), 9)
            if arch.name not in ("Turing", "Ampere", "Kepler", "Blackwell"):
                assert driven == inside, (row.branch, arch.name)


@pytest.mark.parametrize("toolkit", DATA.toolkits.values(), ids=lambda toolkit: toolkit.version)
def test_a_toolkit_comes_with_a_driver_of_a_known_branch(toolkit):
    assert version.major(toolkit.driver) in DATA.branches
    assert version.parse(toolkit.cc_min) < version.parse(toolkit.cc_max)
    assert all(version.parse(driver) for driver in toolkit.updates.values())
    floor = DATA.majors[version.major(toolkit.version)].driver
    assert version.parse(floor) <= (*version.parse(toolkit.driver), 10**6)


def test_there_are_the_gpus_and_each_has_an_architecture():
    detailed = [row for row in DATA.gpus if row.details]
    assert len(detailed) >= 47
    for row in DATA.gpus:
        assert host.architecture(row.compute_capability, DATA), row.product
        assert row.kind in ("datacenter", "workstation", "geforce", "display"), row.product
        assert row.fabric in ("none", "nvswitch", "nvlink5", "rack"), row.product
        assert all(re.fullmatch("[0-9a-f]{4}", pci_id) for pci_id in row.pci_ids), row.product
        if row.driver_min:
            assert version.parse(row.driver_min)
    for row in detailed:
        assert row.details["memory_gb"] > 0 and row.details["tdp_w"] > 0, row.product


def test_every_gpu_has_code_in_some_build():
    sms = {sm for _release, variant in VARIANTS for sm in variant.archs["x86_64"]}
    for row in DATA.gpus:
        capability = version.parse(row.compute_capability)
        assert any(DATA.sass[sm].low <= capability < DATA.sass[sm].high for sm in sms), row.product


def test_one_name_and_one_pci_id_stand_for_one_compute_capability():
    names: dict[str, set[str]] = {}
    ids: dict[str, set[str]] = {}
    for row in DATA.gpus:
        for name in row.names:
            names.setdefault(gpu.normal(name), set()).add(row.compute_capability)
        for pci_id in row.pci_ids:
            ids.setdefault(pci_id, set()).add(row.compute_capability)
    assert {name for name, found in names.items() if len(found) > 1} == set()
    assert {pci_id for pci_id, found in ids.items() if len(found) > 1} == set()


def test_series_and_chips_agree_with_the_lists():
    """A family pattern and an id range give what the lists give, wherever both speak."""
    patterns = [(re.compile(row.pattern), row) for row in DATA.series]
    for row in DATA.gpus:
        for name in row.names:
            for pattern, series in patterns:
                if name != OF_A_LATER_CHIP and pattern.fullmatch(gpu.normal(name)):
                    assert series.gpu.compute_capability == row.compute_capability, (name, series.pattern)
        for pci_id in row.pci_ids:
            for chips in DATA.chips:
                if chips.low <= int(pci_id, 16) <= chips.high:
                    assert chips.compute_capability == row.compute_capability, (pci_id, row.product)


def test_systems_have_their_repository_key_and_packages():
    for system in DATA.systems:
        assert version.parse(system.glibc) and TAG.fullmatch(system.python)
        if system.repository:
            repository = DATA.repositories[system.repository]
            key = DATA.keys[repository.key]
            assert key.state == "valid"
            assert repository.branch_min in DATA.branches
        if system.archive:
            assert any(row.name == system.archive for row in DATA.archives)
    for row in DATA.archives:
        assert row.branch in DATA.branches
    for key in DATA.keys.values():
        assert not key.fingerprint or re.fullmatch("[0-9A-F]{40}", key.fingerprint)
        assert not key.fingerprint or key.fingerprint.endswith(key.id)


@pytest.mark.parametrize(
    ("repository", "fingerprint"),
    [
        ("debian13", "02182E60104FCDC26EAE1B8597A5D4CB8793F200"),
        ("debian12", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("ubuntu2404", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("rhel9", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
    ],
)
def test_the_key_of_a_repository(repository, fingerprint):
    assert DATA.keys[DATA.repositories[repository].key].fingerprint == fingerprint


def test_no_repository_uses_a_revoked_key():
    revoked = {key.id for key in DATA.keys.values() if key.state == "revoked"}
    assert revoked == {"7FA2AF80"}
    assert revoked.isdisjoint(row.key for row in DATA.repositories.values())


def test_every_driver_that_is_offered_has_packages():
    for system in DATA.systems:
        for row in DATA.branches.values():
            if not system.repository or row.branch < DATA.repositories[system.repository].branch_min:
                continue
            for flavour in row.flavours:
                found = [
                    packages
                    for packages in DATA.driver_packages
                    if packages.family == system.family
                    and packages.origin == "nvidia"
                    and not packages.build
                    and packages.flavour == flavour
                    and packages.low <= row.branch <= packages.high
                    and (not packages.repositories or system.repository in packages.repositories)
                ]
                # SUSE has none: a driver is refused there, see driver-not-offered.
                assert len(found) == (system.family != "suse"), (system.id, system.version, row.branch, flavour, found)


def test_rows_of_kernels_and_libraries_are_windows():
    for row in DATA.kernels:
        assert version.parse(row.driver_min) <= version.parse(row.driver_max)
        assert version.major(row.driver_max) in DATA.branches
        assert version.leading(row.kernel_min)
    for bad in DATA.nccl:
        assert version.parse(bad.low) < version.parse(bad.high)
    for dropped in DATA.cudnn:
        assert version.parse(dropped.version) and version.parse(dropped.cc_min)
