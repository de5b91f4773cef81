"""A session of the OpenAI Agents SDK in the file PLACE."""

import asyncio
import sys

from agent import serve
from agents import SQLiteSession

session = SQLiteSession("ada", sys.argv[1])
loop = asyncio.new_event_loop()


def add(text):
    loop.run_until_complete(session.add_items([{"role": "user", "content": text}]))


def read():
    return [item["content"] for item in loop.run_until_complete(session.get_items())]


serve(add=add, read=read)
