# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl.conf and the files of the environment: the user's lines stay, byte for byte."""

from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import conf

OURS = f"{conf.BEGIN}\nNCCL_TOPO_FILE=/ours.xml\n{conf.END}\n"
WANTED = {"NCCL_TOPO_FILE": "/ours.xml"}


class Case(t.NamedTuple):
    before: str
    wanted: t.Mapping[str, str]
    after: str
    kept: t.Tuple[str, ...] = ()


CASES = {
    "no file": Case("", WANTED, OURS),
    "nothing wanted": Case("NCCL_DEBUG=WARN\n", {}, "NCCL_DEBUG=WARN\n"),
    "beside the user's": Case("NCCL_DEBUG=WARN\n", WANTED, "NCCL_DEBUG=WARN\n" + OURS),
    "no line end": Case("NCCL_DEBUG=WARN", WANTED, "NCCL_DEBUG=WARN\n" + OURS),
    "carriage returns": Case("NCCL_DEBUG=WARN\r\n# mine\r\n", WANTED, "NCCL_DEBUG=WARN\r\n# mine\r\n" + OURS),
    "again": Case("A=1\n" + OURS + "B=2\n", WANTED, "A=1\n" + OURS + "B=2\n"),
    "another value": Case(
        "A=1\n" + OURS + "B=2\n", {"NCCL_TOPO_FILE": "/new"}, "A=1\n" + OURS.replace("/ours.xml", "/new") + "B=2\n"
    ),
    "no longer": Case("A=1\n" + OURS + "B=2\n", {}, "A=1\nB=2\n"),
    "only ours, no longer": Case(OURS, {}, ""),
    "the user's own": Case("NCCL_TOPO_FILE=/mine.xml\n", WANTED, "NCCL_TOPO_FILE=/mine.xml\n", ("NCCL_TOPO_FILE",)),
    "the user's own behind ours": Case(
        OURS + "NCCL_TOPO_FILE=/mine.xml\n", WANTED, "NCCL_TOPO_FILE=/mine.xml\n", ("NCCL_TOPO_FILE",)
    ),
    "the user's in a comment": Case("#NCCL_TOPO_FILE=/mine\n", WANTED, "#NCCL_TOPO_FILE=/mine\n" + OURS),
    "two blocks": Case(OURS + "A=1\n" + OURS, WANTED, OURS + "A=1\n"),
    "a block that lost its end": Case(
        f"{conf.BEGIN}\nNCCL_DEBUG=INFO\n", WANTED, OURS + "NCCL_DEBUG=INFO\n"
    ),
    "a block that lost its end before another": Case(
        f"{conf.BEGIN}\nA=1\n{OURS}", WANTED, OURS + "A=1\n"
    ),
    "an end alone is a comment": Case(f"{conf.END}\nA=1\n", WANTED, f"{conf.END}\nA=1\n{OURS}"),
    "odd bytes": Case("# caf\udce9\n", WANTED, "# caf\udce9\n" + OURS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_merge(name: str) -> None:
    case = CASES[name]
    merged = conf.merge(case.before, case.wanted)
    assert merged.text == case.after
    assert tuple(one.name for one, _value in merged.kept) == case.kept
    assert conf.merge(merged.text, case.wanted).text == merged.text


def test_a_file_that_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="UTF-16"):
        conf.merge("\ufeffA\0=\0001\0\n\0", WANTED)


def test_a_name_behind_a_byte_order_mark_is_the_users() -> None:
    merged = conf.merge("\ufeffNCCL_TOPO_FILE=/mine\n", WANTED)
    assert (merged.text, len(merged.kept)) == ("\ufeffNCCL_TOPO_FILE=/mine\n", 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\n#B=2\n\nno\nC==x=y", [(1, "A", "1"), (5, "C", "=x=y")]),
        ("A=1\r\n", [(1, "A", "1\r")]),
        (" A = 1\n", [(1, " A ", " 1")]),
        (" #A=1\n", [(1, " #A", "1")]),
    ],
)
def test_as_nccl_reads(text: str, found: t.List[t.Tuple[int, str, str]]) -> None:
    assert [tuple(one) for one in conf.of_nccl(text)] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("export A=1\n", [(1, "A", "1")]),
        ("A=\"x y\" B='z'\n", [(1, "A", "x y"), (1, "B", "z")]),
        ("# A=1\n  #B=1\n", []),
        ("if x; then export A=1; fi\n", [(1, "A", "1")]),
        ("srun env A=1 python x.py --b=2\n", [(1, "A", "1"), (1, "b", "2")]),
        ("A=\n", [(1, "A", "")]),
        ("XA=1\n", [(1, "XA", "1")]),
        ('python -c "NCCL_BLOCKING_WAIT=1"\n', [(1, "NCCL_BLOCKING_WAIT", "1")]),
    ],
)
def test_as_a_shell_reads(text: str, found: t.List[t.Tuple[int, str, str]]) -> None:
    assert [tuple(one) for one in conf.of_shell(text)] == found


@pytest.mark.parametrize(
    ("text", "shell", "after"),
    [
        ("export NCCL_BLOCKING_WAIT=1\n", True, "export TORCH_NCCL_BLOCKING_WAIT=1\n"),
        ("NCCL_ASYNC_ERROR_HANDLING=1\r\n", True, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\r\n"),
        ("# NCCL_BLOCKING_WAIT=1\n", True, "# NCCL_BLOCKING_WAIT=1\n"),
        ("TORCH_NCCL_BLOCKING_WAIT=1 MY_NCCL_BLOCKING_WAIT=1\n", True,
         "TORCH_NCCL_BLOCKING_WAIT=1 MY_NCCL_BLOCKING_WAIT=1\n"),
        ("NCCL_TIMEOUT=1\n", True, "NCCL_TIMEOUT=1\n"),
        ("NCCL_BLOCKING_WAIT=0\nNCCL_DEBUG=NCCL_BLOCKING_WAIT=1", False,
         "TORCH_NCCL_BLOCKING_WAIT=0\nNCCL_DEBUG=NCCL_BLOCKING_WAIT=1"),
        ("NCCL_DESYNC_DEBUG=1\nexport NCCL_DESYNC_DEBUG\n: ${NCCL_DESYNC_DEBUG} $NCCL_BLOCKING_WAIT\n", True,
         "TORCH_NCCL_DESYNC_DEBUG=1\nexport TORCH_NCCL_DESYNC_DEBUG\n"
         ": ${TORCH_NCCL_DESYNC_DEBUG} $NCCL_BLOCKING_WAIT\n"),
        ("a\x0cNCCL_DESYNC_DEBUG=1", True, "a\x0cTORCH_NCCL_DESYNC_DEBUG=1"),
    ],
)  # fmt: skip
def test_renamed_variables(text: str, shell: bool, after: str) -> None:
    assert conf.replace(text, shell) == after


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_BLOCKING_WAIT", "1", "TORCH_NCCL_BLOCKING_WAIT since torch 2.2"),
        ("NCCL_TIMEOUT", "60", "nothing reads NCCL_TIMEOUT"),
        ("NCCL DEBUG", "1", "no name"),
        ("", "1", "no name"),
        ("FOO\n", "1", "no name"),
        ("NCCL_IB_HCA", ["mlx5_0"], "no text"),
        ("NCCL_IB_DISABLE", True, 'write "1" or "0"'),
        ("NCCL_DEBUG", "INFO\nX=1", "line break"),
        ("NCCL_DEBUG", " INFO", "white space"),
        ("NCCL_DEBUG", "x" * 2000, "1022 characters"),
    ],
)
def test_variables_that_are_refused(name: str, value: t.Any, words: str) -> None:
    (text,) = conf.refused({name: value})
    assert words in text
    assert conf.refused({"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "=eth0", "X": None, "Y": 1}) == []


@pytest.mark.parametrize("value", ["plain", "a b", "it's", '"', "$HOME", "}", "`id`", "\\", "ü"])
def test_a_profile_gives_the_value_and_lets_another_stand(value: str) -> None:
    text = conf.profile({"TORCH_X": value}) + 'printf %s "$TORCH_X"'
    environment = {"PATH": "/usr/bin:/bin"}
    assert (
        subprocess.run(["sh", "-c", text], env=environment, stdout=subprocess.PIPE, check=True).stdout == value.encode()
    )
    environment["TORCH_X"] = "mine"
    assert subprocess.run(["sh", "-c", text], env=environment, stdout=subprocess.PIPE, check=True).stdout == b"mine"
