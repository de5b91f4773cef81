"""The hands: each speaks to one product through its own library or API, as the agent's user with the agent's Python.

A hand is a program: one request on standard input, one answer on standard output (``_hand.serve``). It begins with two
lines that put this directory's parent and itself last on the path: nothing of memops may stand before a product.
What a hand imports of memops runs with Python 3.10 too, which products still support.
"""
