"""What the agents share: each opens one product's store with the product's own client and does what it is told.

``PYTHON NAME_agent.py PLACE [SOCKET]``: a line of JSON is ``[operation, argument, …]``, the answer is one as well. Told
on standard input, or, as a service, on the socket.
"""

import json
import socketserver
import sys
from pathlib import Path


def serve(**operations):
    def answer(line):
        operation, *arguments = json.loads(line)
        return json.dumps(operations[operation](*arguments)) + "\n"

    if len(sys.argv) < 3:
        print('"ready"', flush=True)
        for line in sys.stdin:
            print(answer(line), end="", flush=True)
        return

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(answer(line).encode())

    path = Path(sys.argv[2])
    path.unlink(missing_ok=True)
    with socketserver.UnixStreamServer(str(path), Handler) as server:
        server.serve_forever()
