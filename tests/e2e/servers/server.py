"""Echoes the body of a request after `?delay=Nms`, and exits at SIGTERM at once."""
import http.server
import os
import re
import signal
import time


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        delay = re.search(r"delay=(\d+)ms", self.path)
        time.sleep(int(delay[1]) / 1000 if delay else 0)
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
Server(("", 8080), Echo).serve_forever()
