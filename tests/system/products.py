"""Layers for servers on which the products run whose memory is looked after.

In /opt/products, a virtual environment: Qdrant's client, Chroma, mem0, sqlite-vec, LangGraph's store, openai-agents. In
/opt/mcp, another: mcp-memory-service, which would take Chroma's onnxruntime for its own and go looking for a model.
PostgreSQL is Debian's, stopped and not started at boot. On Debian 13 also, in /opt/node, for Debian's own Node: the
MCP server-memory and mem0's TypeScript edition.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from system import images

if TYPE_CHECKING:
    from pathlib import Path

LIBRARIES: Final = (
    "chromadb==1.5.9",
    "langgraph-checkpoint-sqlite==3.1.2",
    "mem0ai==2.2.1",
    "numpy>=2,<3",
    "openai-agents==0.24.0",
    "qdrant-client==1.20.0",
    "sqlite-vec==0.1.9",
)
MCP: Final = "mcp-memory-service==12.4.0"
"""Without its extras it needs neither torch nor an ONNX model, and makes its vectors of hashes."""

NODE: Final = ("@modelcontextprotocol/server-memory@2026.8.31", "mem0ai@3.3.1", "better-sqlite3@12")
"""The last is what mem0 keeps its memories with; it has no binary in the registry, so it is compiled."""

PACKAGES: Final = {"debian12": "postgresql", "debian13": "postgresql postgresql-17-pgvector"}
"""Debian 12 has no pgvector."""

PYTHON: Final = "/opt/products/bin/python"
MCP_PYTHON: Final = "/opt/mcp/bin/python"
MCP_COMMAND: Final = "/opt/mcp/bin/memory"
NODE_MODULES: Final = "/opt/node/node_modules"
SERVER_MEMORY: Final = f"{NODE_MODULES}/@modelcontextprotocol/server-memory/dist/index.js"
HAS_NODE: Final = "debian13"
"""Debian 12's Node is older than the packages want."""

_PIP: Final = "pip install --quiet --no-cache-dir --disable-pip-version-check --only-binary=:all:"
_SCRIPT: Final = f"""
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -qqy --no-install-recommends $PACKAGES
rm /usr/sbin/policy-rc.d
systemctl disable --quiet postgresql
python3 -m venv /opt/products
/opt/products/bin/{_PIP} $LIBRARIES
python3 -m venv /opt/mcp
/opt/mcp/bin/{_PIP} $MCP
for unwanted in torch onnxruntime sentence_transformers; do
    ! /opt/mcp/bin/python -c "import $unwanted" 2>/dev/null
done
"""

# What npm and the compiler were needed for stays, they go again.
_NODE: Final = """
tools="npm libnode-dev g++ make"
export npm_config_cafile=/etc/ssl/certs/ca-certificates.crt npm_config_update_notifier=false
apt-get update -qq
apt-get install -qqy --no-install-recommends nodejs $tools
npm install --silent --no-audit --no-fund --legacy-peer-deps --ignore-scripts --prefix /opt/node $NODE
cd /opt/node/node_modules/better-sqlite3
node-gyp rebuild --release --nodedir=/usr --jobs=max >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
mv build/Release/better_sqlite3.node .
rm -rf build deps
mkdir -p build/Release
mv better_sqlite3.node build/Release
rm -rf /root/.npm /root/.cache
apt-get purge -qqy --autoremove $tools
"""


@functools.cache
def with_products(suite: str) -> tuple[Path, ...]:
    """The layers of a server that has the products, lowest first."""
    script = f"PACKAGES='{PACKAGES[suite]}' LIBRARIES='{' '.join(LIBRARIES)}' MCP='{MCP}'\n{_SCRIPT}"
    lower = _layered("products", suite, images.with_venv(suite), script)
    if suite != HAS_NODE:
        return lower
    return _layered("node", suite, lower, f"NODE='{' '.join(NODE)}'\n{_NODE}")


def _layered(kind: str, suite: str, lower: tuple[Path, ...], script: str) -> tuple[Path, ...]:
    def build(target: Path) -> None:
        images._layer(lower, target, script)

    key = images._hash(script, *map(images._identity, lower))
    return (*lower, images._cached(f"{kind}-{suite}-{key}", build))


@functools.cache
def with_command(suite: str) -> tuple[Path, ...]:
    """Those layers, and the command of this checkout on top of them, which touches none of the products' files."""
    return (*with_products(suite), images.with_command(suite)[-1])


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:
        list(pool.map(with_command, images.SUITES))
