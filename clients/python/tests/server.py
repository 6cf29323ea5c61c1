"""The real server, for tests: dist/hansard on a store of its own, and a proxy that misbehaves."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from typing import Callable, Optional

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = os.environ.get("HANSARD_BIN", str(ROOT / "dist" / "hansard"))
TOKEN = "a-token-of-this-test-0123456789abcdef"


class Server:
    """hansard serve. Several may serve one directory; `kill` is kill -9."""

    def __init__(self, directory: str, port: int = 0) -> None:
        self.directory = directory
        token = pathlib.Path(directory, "test-token")
        token.write_text(TOKEN)
        token.chmod(0o600)
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--store", os.path.join(directory, "store"), "--listen", f"127.0.0.1:{port}", "--token-from", str(token)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("serving") and (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)):
                self.port = int(found[1])
                break
        else:
            raise RuntimeError("the server did not start:\n" + "".join(said))
        self.url = f"http://127.0.0.1:{self.port}"
        self._drain = threading.Thread(target=self.process.stdout.read, daemon=True)
        self._drain.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._drain.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Temporary:
    """A directory for a store, removed at the end."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="hansard-client-")

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Proxy:
    """Passes connections on, and decides about each: `plan` gets its number and the first bytes
    of the request, and says what to do: "pass", "refuse" (cut before the server sees it), "lose"
    (cut before the answer comes back), "half" (cut after the first bytes of the answer), "short"
    (cut after a million) or "keep" (the answer never comes, and nothing is cut; `kept` tells that it was there)."""

    def __init__(self, port: int, plan: Optional[Callable[[int, bytes], str]] = None) -> None:
        self.target, self.plan, self.count = port, plan or (lambda n, head: "pass"), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.open: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.kept = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self.lock:
            self.open.add(client)
        try:
            self._pass(client)
        except OSError:
            pass
        finally:
            with self.lock:
                self.open.discard(client)
            client.close()

    def _pass(self, client: socket.socket) -> None:
        server = None
        try:
            while head := client.recv(1 << 20):
                with self.lock:
                    self.count += 1
                    n = self.count
                what = self.plan(n, head)
                if what == "refuse":
                    return
                if server is None:
                    server = socket.create_connection(("127.0.0.1", self.target))
                server.sendall(head)
                if what == "lose":
                    server.recv(1 << 16)
                    return
                if what == "keep":
                    server.recv(1 << 16)
                    self.kept.set()
                    client.recv(1)
                    return
                if what in ("half", "short"):
                    left = 40 if what == "half" else 1_000_000
                    while left > 0 and (data := server.recv(1 << 16)):
                        client.sendall(data[:left])
                        left -= len(data)
                    return
                self._answer(client, server)
        finally:
            if server is not None:
                server.close()

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        """Copies in both directions until the client begins another request."""
        import select

        while True:
            ready, _, _ = select.select([client, server], [], [])
            if server in ready:
                data = server.recv(1 << 16)
                if not data:
                    raise OSError("the server is gone")
                client.sendall(data)
            elif client in ready:
                return

    def cut(self) -> None:
        """Cuts all connections there are."""
        with self.lock:
            for s in list(self.open):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self) -> None:
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept, which a close alone does not
        except OSError:
            pass
        self.listener.close()
        self.cut()
