# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A login that was refused is not tried again for an hour: not on that BMC, and after two of them on no other either.

Two hundred BMCs that ask one directory lock its account with the first wrong password of a run. So until a login was
taken once, BMCs are asked one after the other from this machine, and what became of it is remembered in a file of this
user's. It holds no password: only what PBKDF2 makes of one with a salt.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import Trouble
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

FILE, LOCK = "bmc-logins.json", "bmc-logins.lock"
#: Seconds. Account lockouts of BMCs and directories are measured in minutes to an hour.
REMEMBERED = 3600
#: So many BMCs that refuse a login, and none that took it, speak for a wrong password and not for a strange BMC.
REFUSALS = 2
#: Of PBKDF2, some hundredths of a second.
ROUNDS = 50_000
#: Seconds to wait for the others' first answers.
TURN = 30.0

_Entry = t.Dict[str, t.Any]


class Login:
    """One user and password, as this machine remembers them. ``folder`` is made where it is not there."""

    def __init__(self, folder: str, host: str, user: str, password: str) -> None:
        self._path, self._lock = os.path.join(folder, FILE), os.path.join(folder, LOCK)
        self._host, self._user, self._password = host, user, password
        #: What stands for the login in the file, by the file's salt.
        self._keys: t.Dict[str, str] = {}

    @contextlib.contextmanager
    def turn(self) -> t.Iterator[None]:
        """Around the first question with the login: raises Trouble where it is not to be asked.

        Inside, no other process of this user asks with a login that nobody took yet.
        """
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            # Nowhere to remember anything: once for this BMC and run, all the same.
            yield
            return
        try:
            self._wait(lock)
            entry = self._entry(self._read())
            self._refuse(entry)
            if entry["taken"]:
                # Known to be right: all may ask at once.
                fcntl.flock(lock, fcntl.LOCK_UN)
            try:
                yield
            except Trouble as trouble:
                if trouble.state == "refused":
                    self._note(lock, refused=True)
                raise
            if not entry["taken"]:
                self._note(lock, refused=False)
        finally:
            os.close(lock)

    def _wait(self, lock: int) -> None:
        deadline = time.monotonic() + TURN
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() >= deadline:
                    raise Trouble(
                        "silent", f"others still wait to hear whether a login is right ({self._lock})"
                    ) from None
                time.sleep(0.05)

    def _refuse(self, entry: _Entry) -> None:
        if self._host in entry["refused"]:
            raise Trouble(
                "refused", f"it refused this login {_ago(entry['refused'][self._host])}; not tried again{_SOON}"
            )
        if len(entry["refused"]) >= REFUSALS and not entry["taken"]:
            names = ", ".join(sorted(entry["refused"])[:REFUSALS])
            raise Trouble("refused", f"{names} refused this login; not tried here, so that no account is locked{_SOON}")

    def _note(self, lock: int, refused: bool) -> None:
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = self._read()
        entry = self._entry(data)
        if refused:
            entry["refused"][self._host] = time.time()
        else:
            entry["taken"] = time.time()
        write_atomic(self._path, json.dumps(data, indent=2, sort_keys=True) + "\n", 0o600)

    def _read(self) -> t.Dict[str, t.Any]:
        """What is remembered and not too old; of a file that is spoilt, nothing."""
        try:
            with open(self._path, encoding="utf-8") as stream:
                data = json.load(stream)
            now, logins = time.time(), {}
            for key, entry in data["logins"].items():
                refused = {host: at for host, at in entry["refused"].items() if 0 <= now - at < REMEMBERED}
                taken = entry["taken"] if 0 <= now - entry["taken"] < REMEMBERED else 0.0
                if refused or taken:
                    logins[key] = {"refused": refused, "taken": taken}
            return {"salt": str(data["salt"]), "logins": logins}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {"salt": os.urandom(16).hex(), "logins": {}}

    def _entry(self, data: t.Dict[str, t.Any]) -> _Entry:
        salt = str(data["salt"])
        if salt not in self._keys:
            secret = f"{self._user}\0{self._password}".encode()
            self._keys[salt] = hashlib.pbkdf2_hmac("sha256", secret, salt.encode(), ROUNDS).hex()
        return t.cast("_Entry", data["logins"].setdefault(self._keys[salt], {"taken": 0.0, "refused": {}}))


#: What to do about it.
_SOON = ", unless with another password, for an hour"


def folder(env: t.Mapping[str, str]) -> str:
    """Where this user's machine remembers logins."""
    home = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(home, "gpufleet")


def _ago(at: float) -> str:
    return f"{max(0, time.time() - at) / 60:.0f} minutes ago"
