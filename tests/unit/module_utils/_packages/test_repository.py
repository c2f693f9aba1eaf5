# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor's repository: whose key is trusted, and what stands in its way."""

from __future__ import annotations

import base64
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import openpgp, repository
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Apt, PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

# Made by gpg, which printed the fingerprint.
FINGERPRINT = "0A802A9AB6D60F9F8B2DFD39340333107893752B"
KEY = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaw5xShYJKwYBBAHaRw8BAQdA5/VvJey6ZcjVvRIz8mNzmJ9Sj+dZEbMT5Qef
C/gnO9e0H1N0YW5kLWluIDxyZXBvQGV4YW1wbGUuaW52YWxpZD6IkAQTFggAOBYh
BAqAKpq21g+fiy39OTQDMxB4k3UrBQJrDnFKAhsDBQsJCAcCBhUKCQgLAgQWAgMB
Ah4BAheAAAoJEDQDMxB4k3UrVmkA/0/LVX163QRUy6r7/Gp1EyHy7bilu/iW3K8v
vZRmkVx2AQDRlqzskdcDC0qk+cO9OLlCqj275LKD0ZA/KDs5lAUzCQ==
=jnNj
-----END PGP PUBLIC KEY BLOCK-----
"""
PLAN = {
    "name": "debian12",
    "url": "https://vendor.example.invalid/debian12/x86_64/",
    "key": {"id": "3BF863CC", "url": "https://vendor.example.invalid/debian12/x86_64/3bf863cc.pub", "fingerprint": ""},
}


def scratch(root: Path) -> t.Tuple[Apt, Files]:
    (root / "etc/sources.list.d").mkdir(parents=True)
    runner = Runner()
    return Apt(runner, 1, 1, scratch=str(root)), Files(runner)


def test_fingerprints_as_gpg_prints_them() -> None:
    assert openpgp.fingerprints(KEY.encode()) == [FINGERPRINT]
    body = KEY.split("\n\n", 1)[1].split("\n=")[0]
    assert openpgp.fingerprints(base64.b64decode(body)) == [FINGERPRINT]
    assert openpgp.fingerprints(KEY.encode() * 2) == [FINGERPRINT] * 2


@pytest.mark.parametrize("data", [b"", b"<html>404 Not Found</html>", KEY.encode()[:120]])
def test_what_is_no_key(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        openpgp.fingerprints(data)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"fingerprint": "ab cd"}, (PLAN["url"], PLAN["url"] + "3bf863cc.pub", "ABCD")),
        (
            {"fingerprint": "AB", "url": "http://mirror/x"},
            ("http://mirror/x/", "http://mirror/x/3bf863cc.pub", "AB"),
        ),
        (
            {"fingerprint": "AB", "url": "file:///srv/x/", "key_url": "file:///srv/k"},
            ("file:///srv/x/", "file:///srv/k", "AB"),
        ),
    ],
)
def test_a_mirror_in_its_place(given: t.Dict[str, t.Optional[str]], expected: t.Tuple[str, str, str]) -> None:
    found = repository.of_plan(PLAN, given)
    assert (found.url, found.key_url, found.fingerprint) == expected


def test_nobody_said_which_key() -> None:
    with pytest.raises(PackageFailure, match=r"fingerprint of key 3BF863CC .* nvidia_repository_fingerprint"):
        repository.of_plan(PLAN, {})
    with pytest.raises(PackageFailure, match="nvidia_repository_url"):
        repository.of_plan({}, {"fingerprint": FINGERPRINT})


def test_the_source_is_signed_by_its_own_key_alone(tmp_path: Path) -> None:
    apt, files = scratch(tmp_path)
    place = repository.of_plan(PLAN, {"fingerprint": FINGERPRINT})
    asked: t.List[str] = []

    def get(url: str) -> bytes:
        asked.append(url)
        return KEY.encode()

    repository.place(place, apt, files, get)
    source = (tmp_path / "etc/sources.list.d/gpufleet-debian12.sources").read_text()
    assert source.splitlines()[1:] == [
        "Types: deb",
        f"URIs: {PLAN['url']}",
        "Suites: /",
        f"Signed-By: {tmp_path}/etc/gpufleet-debian12.asc",
    ]
    assert files.changed
    # The second time nothing is fetched or written.
    again = Files(Runner())
    repository.place(place, apt, again, get)
    assert not again.changed and len(asked) == 1


def test_another_key_is_not_trusted(tmp_path: Path) -> None:
    apt, files = scratch(tmp_path)
    place = repository.of_plan(PLAN, {"fingerprint": "AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80"})
    for key, said in ((KEY.encode(), FINGERPRINT), (b"<html>404</html>", "no key")):

        def get(_url: str, key: bytes = key) -> bytes:
            return key

        with pytest.raises(PackageFailure, match=f"holds {said}; .* AE09FE4BBD"):
            repository.place(place, apt, files, get)
    assert list((tmp_path / "etc").rglob("*.asc")) == [] and not files.changed


OTHER = (
    "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://vendor.example.invalid/debian12/x86_64 /\n"
)


def test_a_second_entry_is_put_aside_and_comes_back(tmp_path: Path) -> None:
    apt, files = scratch(tmp_path)
    other = tmp_path / "etc/sources.list.d/cuda.list"
    other.write_text(OTHER)
    repository.place(repository.of_plan(PLAN, {"fingerprint": FINGERPRINT}), apt, files, lambda _url: KEY.encode())
    assert not other.exists() and (tmp_path / "etc/sources.list.d/cuda.list.disabled").read_text() == OTHER
    files.take_back()
    assert [path.name for path in (tmp_path / "etc/sources.list.d").iterdir()] == ["cuda.list"]
    assert other.read_text() == OTHER


def test_a_file_with_other_entries_is_the_users(tmp_path: Path) -> None:
    apt, files = scratch(tmp_path)
    other = tmp_path / "etc/sources.list.d/all.list"
    other.write_text(OTHER + "deb http://mirror/slurm bookworm main\n")
    with pytest.raises(PackageFailure, match=r"all\.list names https://vendor.*remove it there"):
        repository.place(repository.of_plan(PLAN, {"fingerprint": FINGERPRINT}), apt, files, lambda _url: KEY.encode())
    files.take_back()
    assert list((tmp_path / "etc").rglob("gpufleet*")) == []


def test_an_entry_of_the_main_list_is_the_users_too(tmp_path: Path) -> None:
    apt, files = scratch(tmp_path)
    (tmp_path / "etc/sources.list").write_text("deb http://mirror/debian bookworm main\n" + OTHER)
    with pytest.raises(PackageFailure, match=r"/etc/sources\.list names https://vendor.*remove it there"):
        repository.place(repository.of_plan(PLAN, {"fingerprint": FINGERPRINT}), apt, files, lambda _url: KEY.encode())


def test_a_key_that_was_changed_is_fetched_once_and_the_old_one_goes(tmp_path: Path) -> None:
    """Rotation: the repository has a new key, and the plan, or the user, its fingerprint."""
    apt, files = scratch(tmp_path)
    path = tmp_path / "etc/gpufleet-debian12.asc"
    path.write_bytes(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nthe old one\n-----END PGP PUBLIC KEY BLOCK-----\n")
    place = repository.of_plan(PLAN, {"fingerprint": FINGERPRINT})
    repository.place(place, apt, files, lambda _url: KEY.encode())
    assert openpgp.fingerprints(path.read_bytes()) == [FINGERPRINT] and files.changed
    # The repository was signed anew, and nobody has said so: the key that is there stays.
    newer = repository.of_plan(PLAN, {"fingerprint": "02182E60104FCDC26EAE1B8597A5D4CB8793F200"})
    with pytest.raises(PackageFailure, match=f"holds {FINGERPRINT}; .* 02182E60104FCDC2"):
        repository.place(newer, apt, Files(Runner()), lambda _url: KEY.encode())
    assert openpgp.fingerprints(path.read_bytes()) == [FINGERPRINT]


def test_a_revoked_key_is_put_aside_and_one_among_others_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As "apt-key add" left it: in a file of its own, and in one that also holds a key of the user's."""
    monkeypatch.setattr(openpgp, "REVOKED", (FINGERPRINT,))
    root = tmp_path / "host"
    (root / "etc/apt/trusted.gpg.d").mkdir(parents=True)
    old, mixed = root / "etc/apt/trusted.gpg.d/cuda.asc", root / "etc/apt/trusted.gpg.d/site.asc"
    old.write_text(KEY)
    body = base64.b64decode(KEY.split("\n\n", 1)[1].split("\n=", maxsplit=1)[0])
    mixed.write_bytes(body + b"\x98\x33\x04" + bytes(50))
    put: t.List[str] = []

    class Remembering(Files):
        def aside(self, path: str) -> None:
            put.append(path)

    apt = Apt(Runner(str(root)), 1, 1)
    apt.etc = str(tmp_path / "etc")
    apt.enter("debian12", str(PLAN["url"]), "/k.asc", Remembering(Runner()), lambda _url: True)
    assert put == ["/etc/apt/trusted.gpg.d/cuda.asc"]


def test_another_repository_of_nvidias_is_named(tmp_path: Path) -> None:
    """What copied commands leave: CUDA with its driver as a repository on the disk."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    said = (
        " 600 https://vendor.example.invalid/debian12/x86_64  Packages\\n     release o=NVIDIA,l=NVIDIA CUDA,c=\\n"
        " 500 file:/var/cuda-repo-debian12-12-8-local  Packages\\n     release o=NVIDIA,l=NVIDIA CUDA,c=\\n"
        " 500 http://mirror/debian bookworm/main amd64 Packages\\n     release v=12.15,o=Debian,a=oldstable\\n"
    )
    for name, text in (("apt-cache", f"printf '{said}'"), ("apt-get", "true")):
        (tmp_path / f"usr/bin/{name}").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / f"usr/bin/{name}").chmod(0o755)
    sources = tmp_path / "etc/apt/sources.list.d"
    sources.mkdir(parents=True)
    (sources / "gpufleet-debian12.sources").write_text(f"Types: deb\nURIs: {PLAN['url']}\nSuites: /\n")
    apt = Apt(Runner(str(tmp_path), {"PATH": "/usr/bin:/bin"}), 1, 1)
    apt.update()
    assert apt.doubled == ["file:/var/cuda-repo-debian12-12-8-local"]
