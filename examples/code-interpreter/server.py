#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs code for the package @e2b/code-interpreter, with Debian's python3-ipykernel and python3-jupyter-client.

POST /execute runs code in a context, which is a kernel that keeps its variables, and returns lines of JSON: result, stdout, stderr, error,
number_of_executions. /contexts makes, lists, restarts and removes contexts. There is one context to begin with, "default".

Nobody is authenticated here: the gateway does that, and the port is the sandbox's own.
"""

import argparse
import http.server
import json
import os
import queue
import re
import threading
import uuid

from jupyter_client.manager import KernelManager

MAX_BODY = 16 << 20
MAX_CONTEXTS = 32
START_SECONDS = 60
# The kinds of a result, by their MIME types.
KINDS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
    "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
    "application/javascript": "javascript",
}
# Plots without a display, as PNG.
PRELUDE = "try:\n    get_ipython().run_line_magic('matplotlib', 'inline')\nexcept Exception:\n    pass\n"


class Refused(Exception):
    """A request that cannot be served, with the HTTP status of its response."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Context:
    """A kernel. One execution runs at a time; others wait."""

    def __init__(self, name, cwd):
        self.id, self.cwd, self.lock = name, cwd, threading.Lock()
        self.manager = KernelManager(kernel_name="python3")
        try:
            self.manager.start_kernel(cwd=cwd)
            self.connect()
        except Exception:
            self.manager.shutdown_kernel(now=True)
            raise

    def connect(self):
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=START_SECONDS)
        for _ in self.run(PRELUDE, silent=True):
            pass

    def describe(self):
        return {"id": self.id, "language": "python", "cwd": self.cwd}

    def restart(self):
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self.connect()

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code, silent=False):
        """Runs code, and yields what it prints and returns."""
        wanted = self.client.execute(code, silent=silent, store_history=not silent, allow_stdin=False)
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                if not self.manager.is_alive():
                    yield {"type": "error", "name": "KernelDied", "value": "the kernel has ended", "traceback": ""}
                    self.restart()
                    return
                continue
            if message["parent_header"].get("msg_id") != wanted:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream":
                yield {"type": content["name"], "text": content["text"]}
            elif kind in ("display_data", "execute_result"):
                yield result(content["data"], kind == "execute_result")
            elif kind == "error":
                lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in content["traceback"]]
                yield {"type": "error", "name": content["ename"], "value": content["evalue"], "traceback": "\n".join(lines)}
            elif kind == "execute_input":
                yield {"type": "number_of_executions", "execution_count": content["execution_count"]}
            elif kind == "status" and content["execution_state"] == "idle":
                return


def result(data, main):
    """A result, by the names that the SDK has for its MIME types; others as they are."""
    out = {"type": "result", "is_main_result": main}
    for mime, value in data.items():
        out[KINDS.get(mime, mime)] = value
    return out


class Contexts:
    """All contexts. The first one starts with the first call that needs it."""

    def __init__(self):
        self.lock, self.all = threading.Lock(), {}

    def make(self, name, cwd, language):
        if language not in (None, "", "python"):
            raise Refused(501, f"language: {language!r} is not served here, want python")
        if not os.path.isdir(cwd):
            raise Refused(400, f"cwd: {cwd!r} is no folder")
        with self.lock:
            if name in self.all:
                return self.all[name]
            if len(self.all) >= MAX_CONTEXTS:
                raise Refused(429, f"there are {MAX_CONTEXTS} contexts, which is the most; remove one")
            self.all[name] = Context(name, cwd)
            return self.all[name]

    def find(self, name):
        with self.lock:
            if name not in self.all:
                raise Refused(404, f"there is no context {name!r}")
            return self.all[name]

    def remove(self, name):
        with self.lock:
            if name not in self.all:
                raise Refused(404, f"there is no context {name!r}")
            gone = self.all.pop(name)
        gone.close()

    def list(self):
        with self.lock:
            return [c.describe() for c in self.all.values()]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    contexts = Contexts()

    def log_message(self, *_):
        """Nothing: code and its output are the tenant's."""

    def body(self):
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= MAX_BODY:
            raise Refused(413, f"the body has {length} bytes, want {MAX_BODY} at most")
        try:
            out = json.loads(self.rfile.read(length) or b"{}")
        except ValueError as err:
            raise Refused(400, f"the body is not JSON: {err}") from err
        if not isinstance(out, dict):
            raise Refused(400, "the body is no JSON object")
        return out

    def answer(self, status, value=None):
        text = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def serve(self):
        path = self.path.partition("?")[0].strip("/").split("/")
        try:
            body = self.body()
            self.route(path, body)
        except Refused as err:
            self.answer(err.status, {"code": err.status, "message": str(err)})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_DELETE = serve

    def route(self, path, body):
        method = self.command
        if (method, path) == ("GET", ["health"]):
            self.answer(200, "OK")
        elif (method, path) == ("POST", ["execute"]):
            self.execute(body)
        elif (method, path) == ("GET", ["contexts"]):
            self.answer(200, self.contexts.list())
        elif (method, path) == ("POST", ["contexts"]):
            made = self.contexts.make(str(uuid.uuid4()), body.get("cwd") or os.getcwd(), body.get("language"))
            self.answer(201, made.describe())
        elif path[0] == "contexts" and method == "DELETE" and len(path) == 2:
            self.contexts.remove(path[1])
            self.answer(204)
        elif path[0] == "contexts" and method == "POST" and path[2:] == ["restart"]:
            context = self.contexts.find(path[1])
            with context.lock:
                context.restart()
            self.answer(204)
        else:
            raise Refused(404, f"{method} {self.path} is not served here")

    def execute(self, body):
        if not isinstance(body.get("code"), str):
            raise Refused(400, "code: want text")
        if body.get("context_id"):
            context = self.contexts.find(body["context_id"])
        else:
            context = self.contexts.make("default", os.getcwd(), body.get("language"))
        env = body.get("env_vars") or {}
        if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()):
            raise Refused(400, "env_vars: want an object of text")
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with context.lock:
            self.during(context, env, body["code"])
        self.wfile.write(b"0\r\n\r\n")

    def during(self, context, env, code):
        """Runs code with variables that are there for it alone. It is interrupted when its caller has gone."""
        if env:
            names = json.dumps(json.dumps(env))
            begin = f"import os as _o, json as _j\n_e = _j.loads({names})\n_b = {{k: _o.environ.get(k) for k in _e}}\n_o.environ.update(_e)"
            list(context.run(begin, silent=True))
        try:
            running = context.run(code)
            for line in running:
                try:
                    self.line(line)
                except OSError:
                    context.manager.interrupt_kernel()
                    list(running)
                    raise
        finally:
            if env:
                end = "for _k, _v in _b.items():\n    _o.environ.pop(_k, None) if _v is None else _o.environ.__setitem__(_k, _v)\ndel _o, _j, _e, _b"
                list(context.run(end, silent=True))

    def line(self, value):
        text = json.dumps(value).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()


def main():
    flags = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    flags.add_argument("--host", default="127.0.0.1", help="address; the gateway reaches the sandbox's loopback")
    flags.add_argument("--port", type=int, default=49999)
    options = flags.parse_args()
    http.server.ThreadingHTTPServer.daemon_threads = True
    http.server.ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
