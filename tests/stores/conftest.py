"""A server with the products, and the way of a part: copied as agent, verified as root, opened elsewhere."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from system import images, products

# The hooks of the ring with servers: leftovers away, journals beside failures, modules on one Debian each.
from system.conftest import (  # noqa: F401
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
    pytest_sessionstart,
    suite,
)
from system.server import Server

HANDS = Path(__file__).parent / "hands"
AGENTS = "/srv/agents"
PYTHONS = {"mcp_memory": products.MCP_PYTHON, "langgraph": "/usr/bin/python3", "qdrant": "/usr/bin/python3"}
"""What each hand runs with; the others with the products' Python."""

_WALLS = ("ProtectSystem=strict", "ProtectHome=read-only", "PrivateTmp=yes", "ReadWritePaths=/srv/agent", "User=agent")

_KIND = """
import json, os, sys
sys.path.insert(0, "/usr/local/lib/memops")
import census, job, kinds
verb, kind, place, other = sys.argv[1:]
os.umask(0o027)
limit, module = census.Limit(120), kinds.load(kind)
try:
    if verb == "snapshot":
        found = module.snapshot(place, other, limit)
    elif verb == "restore":
        found = module.restore(place, other, limit)
    else:
        found = module.verify(place, json.loads(other), limit)
        assert module.verify(place, json.loads(json.dumps(found)), limit) == found
        role = module.ids(place)
        found = [found, role and [role[0], sorted(role[1])]]
except job.JobError as error:
    sys.exit(f"JobError: {error}")
json.dump(found, sys.stdout)
"""


class KindError(Exception):
    """A kind raised JobError, and this is what it said."""


class Lab:
    """A server with the products, a user ``agent``, and the jobs in /usr/local/lib/memops."""

    error = KindError

    def __init__(self, server: Server) -> None:
        self.server = server

    def kind(self, verb, kind, place, other, *, user="agent", **options):
        """Call a function of a kind with the system's python3. Raises KindError with the words of its JobError."""
        result = self.server.run(
            "python3", "-I", "-c", _KIND, verb, kind, place, other, user=user, check=False, **options
        )
        if result.stderr.startswith("JobError: "):
            raise KindError(result.stderr)
        assert (result.code, result.stderr) == (0, "")
        return json.loads(result.stdout)

    def snapshot(self, kind, source, name, **options):
        """Copy a part as agent; returns the claim."""
        self.server.sh(
            "mkdir -p /srv/incoming; chown agent:root /srv/incoming; chmod 2750 /srv/incoming;"
            f" rm -rf /srv/incoming/{name}"
        )
        self.server.run("mkdir", "-m", "750", f"/srv/incoming/{name}", user="agent")
        return self.kind("snapshot", kind, source, f"/srv/incoming/{name}", **options)

    def verify(self, kind, name, claim):
        """Take the copy over and verify it as root; what the manifest says, and the ids."""
        self.server.sh(
            f"mkdir -m 700 -p /root/sets; rm -rf /root/sets/{name};"
            f" cp -r --no-dereference --no-preserve=all /srv/incoming/{name} /root/sets/{name}"
        )
        before = self.files(f"/root/sets/{name}")
        answer = self.kind("verify", kind, f"/root/sets/{name}", json.dumps(claim), user="root")
        assert self.files(f"/root/sets/{name}") == before, "verifying left or changed a file"
        return answer

    def files(self, directory):
        """Every file of a directory with its sum."""
        return self.server.sh(f"cd {directory}; find . -type f -print0 | sort -z | xargs -0 sha256sum").stdout

    def put(self, name, place):
        """Put a verified copy into a fresh place, as agent's."""
        self.server.sh(f"rm -rf {place}; cp -r /root/sets/{name} {place}; chown -R agent: {place}")

    def read(self, hand, *arguments, user="agent", **options):
        """What the product finds in a place."""
        result = self.server.run(
            products.PYTHON, "-W", "ignore", "-c", (HANDS / hand).read_text(), "read", *arguments, user=user, **options
        )
        return json.loads(result.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def process(self, *command, user="agent"):
        """A process that is killed at the end: not only nsenter, which ``popen`` starts and which would leave it."""
        with self.server.popen(
            "sh", "-c", 'echo $$; exec "$@"', "sh", *command, user=user, empty_input=False
        ) as started:
            number = started.stdout.readline().strip()
            try:
                yield started
            finally:
                self.server.run("kill", "-KILL", number, check=False)

    @contextlib.contextmanager
    def writer(self, hand, *arguments):
        """A process of the product that has a store open: a function that sends a line and returns the answer."""
        command = (products.PYTHON, "-W", "ignore", "-c", (HANDS / hand).read_text(), "write", *arguments)
        with self.process(*command) as process:

            def ask(line=""):
                if line:
                    process.stdin.write(f"{line}\n")
                    process.stdin.flush()
                answer = process.stdout.readline()
                assert answer, process.communicate()[1]
                return json.loads(answer)

            yield ask

    @contextlib.contextmanager
    def agent(self, product, place, **environment):
        """An agent of hands/agents that has a store open: a function that tells it something and returns the answer."""
        script = f"{AGENTS}/{product}_agent.py"
        python = products.MCP_PYTHON if product == "mcp_memory" else products.PYTHON
        variables = [f"{name}={value}" for name, value in environment.items()]
        with self.process("env", *variables, python, "-W", "ignore", script, place) as process:

            def tell(*words):
                if words:
                    process.stdin.write(json.dumps(words) + "\n")
                    process.stdin.flush()
                answer = process.stdout.readline()
                assert answer, process.communicate()[1]
                return json.loads(answer)

            assert tell() == "ready"
            yield tell
            process.stdin.close()  # it ends in order
            process.wait(timeout=30)

    def hand(self, name, op, config, python=None, environment=(), **more):
        """What a hand answers, run as its unit would: as agent, and with no network where it needs none."""
        walls = [*_WALLS, *([] if "url" in config else ["PrivateNetwork=yes"]), *environment]
        result = self.server.run(
            *("systemd-run", "--quiet", "--pipe", "--wait", "--collect"),
            *(f"--property={wall}" for wall in walls),
            *(python or PYTHONS.get(name, products.PYTHON), f"/usr/local/lib/memops/hands/{name}.py"),
            input=json.dumps({"op": op, "config": config, **more}),
        )
        return json.loads(result.stdout)

    def ask(self, name, op, config, **more):
        """The value that a hand answers with."""
        answer = self.hand(name, op, config, **more)
        assert "value" in answer, answer
        return answer["value"]


def run_lab(server, lib=None):
    """Make a server into a lab; without ``lib``, the jobs, where memops itself will install them."""
    server.run("useradd", "--create-home", "--home-dir", "/srv/agent", "agent")
    server.copy_in(HANDS / "agents", AGENTS)
    if lib:
        server.copy_in(lib, "/usr/local/lib/memops")
        server.run("chmod", "-R", "a+rX", "/usr/local/lib/memops")
    server.run("chmod", "-R", "a+rX", AGENTS)
    return Lab(server)


@pytest.fixture(scope="module", params=list(images.SUITES))
def lab(request, lib):
    """One server for the tests of a module, on each Debian."""
    with Server(request.param, products.with_products(request.param)) as server:
        yield run_lab(server, lib)
