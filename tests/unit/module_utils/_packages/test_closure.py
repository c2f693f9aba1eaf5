# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive of a closure: its index in apt's words, and the source that leads apt to it."""

import hashlib
import tarfile

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import closure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result

#: As dpkg-deb --field prints it (Debian 12's nvidia-persistenced, shortened).
CONTROL = """Package: nvidia-persistenced
Version: 535.171.04-1~deb12u1
Architecture: amd64
Depends: libc6 (>= 2.34), libnvidia-cfg1 (>= 535) | libnvidia-cfg.so.1
Description: daemon to maintain persistent software state in the NVIDIA driver
 When persistence mode is enabled, the NVIDIA driver stays loaded.
"""
#: Of apt-get --print-uris on Debian 12: a mirror, and a source on the disk.
URIS = """Reading package lists...
'http://mirror.example.com/debian/pool/main/m/make-dfsg/make_4.3-4.1_amd64.deb' make_4.3-4.1_amd64.deb 396204 SHA256:aa
'file:/srv/archive/./bystander_1.0-1_all.deb' bystander_1.0-1_all.deb 708 SHA256:bb
'file:///srv/more/other_1%3a2.0_all.deb' other_1%3a2.0_all.deb 708 SHA256:cc
"""


def test_files_of_a_source_on_the_disk():
    assert closure.local(URIS) == ["/srv/archive/./bystander_1.0-1_all.deb", "/srv/more/other_1%3a2.0_all.deb"]


@pytest.mark.parametrize("more", ["", "Filename: pool/x.deb\nSize: 1\nMD5sum: aa\nSHA256: bb\n"])
def test_entry(more):
    text = closure.stanza(CONTROL.replace("Description:", more + "Description:"), "a_1.deb", 12, "ab")
    assert text == CONTROL + "Filename: ./a_1.deb\nSize: 12\nSHA256: ab\n\n"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (Result(2, "", "dpkg-deb: error: is not a Debian format archive"), "not a Debian format"),
        (Result(0, "x"), "no package"),
    ],
)
def test_what_is_no_package_is_named(tmp_path, told, says):
    path = tmp_path / "a_1.deb"
    path.write_bytes(b"")
    with pytest.raises(PackageFailure, match="a_1.deb .*" + says):
        closure.index([str(path)], lambda name: told)


@pytest.mark.parametrize("of_apt", [True, False])
def test_pack(tmp_path, of_apt):
    path = tmp_path / "a_1.deb"
    path.write_bytes(b"package")
    text = closure.index([str(path)], lambda name: Result(0, CONTROL)) if of_apt else ""
    assert not of_apt or "SHA256: " + hashlib.sha256(b"package").hexdigest() in text
    archive, digest = closure.pack([str(path)], str(tmp_path), text)
    first = (tmp_path / (digest + ".tar")).read_bytes()
    path.touch()
    assert closure.pack([str(path)], str(tmp_path), text) == (archive, digest)
    assert (tmp_path / (digest + ".tar")).read_bytes() == first, "the same packages make the same archive"
    path.write_bytes(b"another")
    assert of_apt or closure.pack([str(path)], str(tmp_path))[1] != digest
    with tarfile.open(archive) as tar:
        # What says that all was unpacked comes last.
        assert tar.getnames() == [*(["Packages", "bundle.list"] if of_apt else []), "a_1.deb", "whole"]
        assert {(item.uid, item.mode) for item in tar} == {(0, 0o644)}
        source = tar.extractfile("bundle.list").read().decode() if of_apt else ""
    assert source == (f"deb [trusted=yes] file:{closure.PLACE}/{digest} ./\n" if of_apt else "")
