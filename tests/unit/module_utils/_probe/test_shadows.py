# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of files that put another copy of the wheel's libraries on a program's path, and what is made of them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import shadows as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import shadows

TOOLKIT = "/usr/local/cuda-12.2/lib64"
COMPAT = "/usr/local/cuda-13.0/compat"
LINK = "/usr/local/cuda/lib64"
LD = "LD_LIBRARY_PATH"


@pytest.fixture
def host(machine):
    """A host with a driver, a toolkit of another version and its compat folder; nothing names them yet."""
    for name in ("libnvJitLink.so.12", "libcudart.so.12", "libcurl.so.4", "libnvidia-opencl.so.1", "libcuda.txt"):
        machine.file(f"{TOOLKIT}/{name}")
    machine.library("580.65.06", COMPAT)
    machine.library("570.133.20")
    machine.link("/usr/local/cuda", "cuda-12.2")
    machine.file("/opt/harmless/libfoo.so")
    machine.file("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    machine.file("/etc/ld.so.conf.d/x86_64-linux-gnu.conf", "# Multiarch\n/usr/lib/x86_64-linux-gnu\n")
    machine.file("/opt/miniforge3/conda-meta/history")
    machine.file("/opt/miniforge3/envs/train/conda-meta/history")
    return machine


def judged(machine, first="/usr/lib/x86_64-linux-gnu/libcuda.so.1") -> Finding:
    observed: t.Dict[str, t.Any] = {
        "pci": [{"role": "gpu", "address": "0000:1b:00.0"}],
        "gpus": [],
        "driver": {"version": "570.133.20", "libraries": [{"name": "libcuda.so.1", "path": first}]},
        "shadows": shadows.probe(machine.runner()),
    }
    (finding,) = checks.library_shadowed.findings(observed)
    return finding


#: file, its text, line, folder that it brings, how it is said.
BRINGS = [
    ("/etc/environment", f'PATH="/usr/bin"\n{LD}="{TOOLKIT}"\n', 2, TOOLKIT, ""),
    ("/etc/profile.d/cuda.sh", f"# CUDA\nexport {LD}={LINK}:${LD}\n", 2, LINK, ""),
    ("/etc/profile.d/cuda.sh", f"export {LD}={LINK}${{{LD}:+:${{{LD}}}}}\n", 1, LINK, ""),
    ("/etc/profile.d/cuda.sh", f"CUDA_HOME=/usr/local/cuda\nexport {LD}=${LD}:$CUDA_HOME/lib64/\n", 2, LINK, ""),
    ("/etc/profile.d/cuda.sh", f"export {LD}=${{CUDA_HOME:-/usr/local/cuda}}/lib64\n", 1, LINK, ""),
    ("/etc/profile.d/cuda.sh", f"if [ -d /x ]; then\n  export A=1 {LD}=/opt/harmless:{LINK}; fi\n", 2, LINK, ""),
    ("/etc/profile.d/cuda.csh", f"setenv {LD} {LINK}\n", 1, LINK, ""),
    ("/etc/profile", f"[ -d /usr/local/cuda ] && export {LD}='{LINK}'\n", 1, LINK, ""),
    ("/etc/environment.d/50-cuda.conf", f"{LD}={LINK}\n", 1, LINK, ""),
    ("/etc/security/pam_env.conf", f"{LD} DEFAULT={LINK}\n", 1, LINK, ""),
    ("/etc/systemd/system.conf", f"[Manager]\nDefaultEnvironment={LD}={LINK}\n", 2, LINK, " of a service"),
    ("/etc/systemd/system.conf.d/a.conf", f'DefaultEnvironment="A=b" "{LD}={LINK}"\n', 1, LINK, " of a service"),
    ("/etc/systemd/system/slurmd.service.d/cuda.conf", f'Environment="{LD}={LINK}"\n', 1, LINK, " of a service"),
    ("/etc/default/slurmd", f"{LD}={LINK}\n", 1, LINK, " of a service"),
    ("/opt/miniforge3/envs/train/etc/conda/activate.d/env.sh", f"export {LD}={LINK}\n", 1, LINK, " where it is"),
    ("/opt/miniforge3/conda-meta/state", f'{{"env_vars": {{"{LD}": "{LINK}"}}}}', 1, LINK, " where it is"),
]


@pytest.mark.parametrize(("path", "text", "line", "folder", "who"), BRINGS)
def test_a_variable_that_brings_another_copy_is_named_with_its_line(host, path, text, line, folder, who):
    host.file(path, text)
    finding = judged(host)
    assert (finding.state, finding.action) == ("warn", "fix configuration")
    assert finding.found == (
        f"{path}:{line} puts {folder} into {LD}{who and f'{who} activated' if 'where' in who else who}"
        " (libcudart.so.12, libnvJitLink.so.12)"
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/environment", f"{LD}=/opt/harmless\n"),
        ("/etc/environment", f"{LD}=/not/there:relative:\n"),
        ("/etc/environment", f"#{LD}={TOOLKIT}\n"),
        ("/etc/environment", f"{LD}={TOOLKIT}\0/x:/\0\n"),
        ("/etc/profile.d/cuda.sh", "A=xxxxxxxxxx\n" + "A=$A$A\n" * 60 + f"{LD}=/$A\n"),
        ("/etc/ld.so.conf", "/opt/\0harmless\ninclude /etc/\0/*.conf\n"),
        ("/etc/profile.d/cuda.sh", f"unset {LD}\necho ${LD}\nOLD_{LD}={TOOLKIT}\n"),
        ("/etc/profile.d/cuda.sh", f"export LIBRARY_PATH={TOOLKIT}\nexport PATH=/usr/local/cuda/bin:$PATH\n"),
        ("/etc/profile.d/README", f"export {LD}={TOOLKIT}\n"),
        ("/etc/environment", "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4\n"),
        ("/etc/ld.so.preload", "/usr/lib/libsnoopy.so\n"),
        ("/home/somebody/.bashrc", f"export {LD}={TOOLKIT}\n"),
    ],
)
def test_what_brings_nothing_is_not_told(host, path, text):
    host.file(path, text)
    assert judged(host).found == "no line brings another copy"
    assert judged(host).state == "ok"


def test_a_folder_that_another_file_tells_is_said(host):
    host.file("/etc/profile.d/cuda.sh", f"export {LD}=$SITE_CUDA/lib64\n")
    assert (judged(host).state, judged(host).found) == (
        "warn",
        f"/etc/profile.d/cuda.sh:1 puts $SITE_CUDA/lib64 into {LD} (a folder that another file tells)",
    )


def test_what_the_loader_finds_comes_after_the_wheel(host):
    host.file("/etc/ld.so.conf.d/000_cuda.conf", f"{TOOLKIT}\n")
    finding = judged(host)
    assert finding.state == "ok"
    assert finding.found == (
        f"/etc/ld.so.conf.d/000_cuda.conf:1 puts {TOOLKIT} on the loader's path"
        " (libcudart.so.12, libnvJitLink.so.12): after the wheel's own"
    )


@pytest.mark.parametrize(("first", "state"), [(f"{COMPAT}/libcuda.so.1", "fail"), ("/usr/lib/libcuda.so.1", "warn")])
def test_a_compat_folder_of_the_loader_makes_it_another_driver(host, first, state):
    host.file("/etc/ld.so.conf.d/00-compat.conf", f"\n{COMPAT}\n")
    finding = judged(host, first)
    assert (finding.state, finding.action, finding.policy) == (state, "fix configuration", "block")
    assert finding.found == (
        f"/etc/ld.so.conf.d/00-compat.conf:2 puts {COMPAT} on the loader's path (libcuda.so.1 580.65.06)"
    )


def test_a_compat_folder_of_a_login(host):
    host.file("/etc/profile.d/compat.sh", f"export {LD}={COMPAT}:${LD}\n")
    assert (judged(host).state, judged(host).found) == (
        "warn",
        f"/etc/profile.d/compat.sh:1 puts {COMPAT} into {LD} (libcuda.so.1 580.65.06)",
    )


def test_the_drivers_own_folder_is_no_shadow(host):
    host.file("/etc/ld.so.conf.d/nvidia.conf", "/opt/driver/lib\n")
    host.library("570.133.20", "/opt/driver/lib")
    host.file("/etc/environment", f"{LD}=/opt/driver/lib\n")
    assert judged(host, "/opt/driver/lib/libcuda.so.1").state == "ok"


@pytest.mark.parametrize(
    ("path", "text", "state", "found"),
    [
        (
            "/etc/ld.so.preload",
            "/opt/nccl/libnccl.so.2\n",
            "fail",
            ":1 loads /opt/nccl/libnccl.so.2 into every program",
        ),
        ("/etc/environment", "LD_PRELOAD=/opt/nccl/libnccl.so.2\n", "warn", ":1 puts /opt/nccl/libnccl.so.2 into LD_"),
    ],
)
def test_a_library_that_is_loaded_into_every_program(host, path, text, state, found):
    host.file(path, text)
    assert judged(host).state == state
    assert judged(host).found.startswith(path + found)


def test_not_told_is_no_ok():
    facts = {
        "pci": [{"role": "gpu", "address": "0000:1b:00.0"}],
        "gpus": [],
        "driver": {"version": "", "libraries": []},
    }
    (finding,) = checks.library_shadowed.findings({**facts, "shadows": [], "errors": {"shadows": "OSError"}})
    assert finding.state == "unknown"
    (finding,) = checks.library_shadowed.findings(facts)
    assert finding.state == "not_applicable"


def record(machine, name, *files):
    machine.file(
        f"/venv/lib/python3.11/site-packages/{name}.dist-info/RECORD", "".join(f"{f},sha256=0,1\n" for f in files)
    )


@pytest.mark.parametrize(
    ("packages", "state", "found"),
    [
        # Names and files as those of the index.
        ({"nvidia_nccl_cu12-2.27.5": ["nvidia/nccl/lib/libnccl.so.2"], "nvidia_cublas-13.0.0.19": [],
          "nvidia_cublas_cu12-12.8.4.1": []}, "warn", "nvidia-cublas 13.0.0.19 beside nvidia-cublas-cu12 12.8.4.1"),
        ({"nvidia_nccl_cu12-2.27.5": ["nvidia/nccl/lib/libnccl.so.2", "nvidia/nccl/include/nccl.h"],
          "nvidia_nccl_cu13-2.28.9": ["nvidia/nccl/lib/libnccl.so.2"]}, "fail",
         "nvidia-nccl-cu12 2.27.5 beside nvidia-nccl-cu13 2.28.9, both with nvidia/nccl/lib/libnccl.so.2"),
        ({"nvidia_nccl_cu13-2.28.9": ["nvidia/nccl/lib/libnccl.so.2"], "nvidia_cudnn_cu13-9.15.1.9": [],
          "torch-2.10.0": [], "nvidia_ml_py-13.590.44": []}, "ok", "one package for each of NVIDIA's libraries"),
    ],
)  # fmt: skip
def test_two_packages_of_one_library(machine, packages, state, found):
    for name, files in packages.items():
        record(machine, name, *files)
    machine.link("/venv/lib64", "lib")
    (finding,) = checks.doubled(shadows.doubled(machine.runner(), "/venv"), "/venv/bin/python")
    assert (finding.state, finding.found) == (state, found)


def test_why_torch_got_it_is_told_by_the_line(host):
    host.file("/etc/profile.d/cuda.sh", f"export {LD}={TOOLKIT}\n")
    host.file("/etc/profile.d/other.sh", f"export {LD}=/opt/harmless\n")
    facts = shadows.probe(host.runner())
    line = f"/etc/profile.d/cuda.sh:1 puts {TOOLKIT} into {LD} (libcudart.so.12, libnvJitLink.so.12)"
    loaded = Finding("torch-libraries", "fail", found=f"{TOOLKIT}/libnvJitLink.so.12 instead of /venv/x")
    assert checks.explained(loaded, facts, "") == line
    failed = Finding("torch-import", "fail", found="ImportError: undefined symbol: __nvJitLinkComplete_12_4")
    assert checks.explained(failed, facts, TOOLKIT) == f"{LD} of this run is {TOOLKIT}; {line}"
    assert checks.explained(failed, facts, "") == ""
