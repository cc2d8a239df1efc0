"""A program `cbx` for shell scripts, each call of which is a fork of a process that has loaded cbx already.

What the shell starts hands its streams, words, variables and folder over a socket to a thread of the test, which
makes the fork, and ends as that ends. Signals are passed on.
"""

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from threading import Thread

from tests.crash.processes import fork_on

_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [len(asked).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(asked)
    pid = int.from_bytes(server.recv(4), "big")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: os.kill(pid, number))
    code = int.from_bytes(server.recv(4), "big", signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def cbx_for_shells(folder: Path) -> Iterator[Path]:
    """A folder for the PATH of shells, in which `cbx` is such a program. Its own path must be short."""
    folder.mkdir()
    address = str(folder / "calls")
    program = folder / "cbx"
    program.write_text(_PROGRAM.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        Thread(target=_answer_all, args=(server,), daemon=True).start()
        yield folder
        server.shutdown(socket.SHUT_RDWR)


def _answer_all(server: socket.socket) -> None:
    while True:
        try:
            caller, _ = server.accept()
        except OSError:
            return
        Thread(target=_answer, args=(caller,), daemon=True).start()


def _answer(caller: socket.socket) -> None:
    """Run what a caller asks for; where the caller is killed, so is what it asked for."""
    with caller, caller.makefile("rb") as reader:
        size, descriptors, _, _ = socket.recv_fds(caller, 4, 3)
        arguments, environment, folder = json.loads(reader.read(int.from_bytes(size, "big")))
        process = fork_on(descriptors, arguments, environment, folder)
        for descriptor in descriptors:
            os.close(descriptor)
        # A caller that is killed does not see the end.
        with suppress(OSError):
            caller.sendall((process.pid or 0).to_bytes(4, "big"))
        if process.sentinel not in connection.wait([process.sentinel, caller]):
            process.kill()
        process.join()
        with suppress(OSError):
            caller.sendall((process.exitcode or 0).to_bytes(4, "big", signed=True))
        process.close()
