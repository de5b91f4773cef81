"""The MCP server-memory on Debian's Node, spoken to as MCP clients do; its file is PLACE."""

import itertools
import json
import os
import subprocess
import sys

from agent import serve

SERVER = "/opt/node/node_modules/@modelcontextprotocol/server-memory/dist/index.js"
numbers = itertools.count(1)
process = subprocess.Popen(
    ["node", SERVER],
    env={**os.environ, "MEMORY_FILE_PATH": sys.argv[1]},
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
)


def send(method, parameters, **more):
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": parameters, **more}) + "\n")
    process.stdin.flush()


def ask(method, parameters):
    number = next(numbers)
    send(method, parameters, id=number)
    while True:
        answer = json.loads(process.stdout.readline())
        if answer.get("id") == number:
            return answer["result"]


def call(tool, **arguments):
    return json.loads(ask("tools/call", {"name": tool, "arguments": arguments})["content"][0]["text"])


ask(
    "initialize",
    {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}},
)
send("notifications/initialized", {})


def add(name, text):
    call("create_entities", entities=[{"name": name, "entityType": "person", "observations": [text]}])


def read():
    return {each["name"]: each["observations"] for each in call("read_graph")["entities"]}


serve(add=add, read=read)
