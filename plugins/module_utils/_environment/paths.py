# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths as a user gives them: refused before anything is done where they cannot mean one place of the host."""

from __future__ import annotations

import os
import re
import stat

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import EnvironmentFailure

#: The name of a command, which is looked for in PATH.
_COMMAND = re.compile(r"[A-Za-z][\w.+-]*$")
#: What Ansible leaves of a variable that the host does not have.
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")


def refuse(name: str, value: str, *, command: bool = False) -> None:
    """Raise EnvironmentFailure unless the value of option ``name`` is an absolute path, or the name of a command where
    ``command`` allows that. Empty is the option's default and passes."""
    if not value or (command and _COMMAND.match(value)):
        return
    needed = f"{name} needs an absolute path{' or the name of a command' if command else ''}, found {value!r}"
    if "\0" in value:
        raise EnvironmentFailure(f"{needed}, which holds a NUL byte; nothing was changed")
    variable = _VARIABLE.search(value)
    if variable and not os.path.lexists(value):
        raise EnvironmentFailure(
            f"{needed}, and this host has no variable {variable.group(0)}; nothing was changed. Write the path out"
        )
    if not os.path.isabs(value):
        raise EnvironmentFailure(f"{needed}; nothing was changed. Write the path out, from / on")


def place(venv: str) -> str:
    """The folder that the environment's path means, links at its end followed. Raises EnvironmentFailure for a link to
    nothing (what it names may be a disk that is not mounted), and for a path of which Python makes no environment."""
    if os.pathsep in venv:
        raise EnvironmentFailure(
            f"pytorch_venv needs a path without {os.pathsep!r}, which separates the entries of PATH, found {venv!r};"
            " nothing was changed. Choose another path"
        )
    if not os.path.islink(venv):
        return venv
    target = os.path.realpath(venv)
    if not os.path.exists(target):
        raise EnvironmentFailure(
            f"pytorch_venv {venv} is a link to {os.readlink(venv)}, where nothing is; nothing was changed. Make that"
            " folder, mount the disk that holds it, or remove the link"
        )
    return place(target)


def not_runnable(python: str) -> str:
    """Why the file cannot be started as an interpreter, said for a person; empty where nothing speaks against it."""
    try:
        mode = os.stat(python).st_mode
    except OSError as error:
        return f"{python} is not there" if isinstance(error, FileNotFoundError) else f"{python}: {error.strerror}"
    if stat.S_ISDIR(mode):
        return f"{python} is a folder; the interpreter of an environment is its bin/python"
    if not os.access(python, os.X_OK):
        return f"{python} is there, but user {os.geteuid()} may not execute it (mode {stat.S_IMODE(mode):04o})"
    return ""
