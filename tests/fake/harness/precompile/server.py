"""Stands for the process that compiles ahead. FAKE_BUILDER says what it does: writes down what it is told in the file
of that name, or dies (`dies`), hangs before it is ready (`never ready`), dies of its first request (`leaves`), or never
reads one (`deaf`)."""

import json
import os
import sys
import time


def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def main():
    todo = os.environ["FAKE_BUILDER"]
    os.write(2, b"words that nobody is to see\n")
    if todo == "dies":
        os.abort()
    if todo == "never ready":
        time.sleep(100)
    say("hello", protocol=1, pid=os.getpid())
    say("ready", environment={})
    if todo == "deaf":
        time.sleep(100)
    for line in sys.stdin:
        if todo == "leaves":
            os._exit(1)
        with open(todo, "a") as file:
            file.write(line)
        if '"whole"' in line:
            say("left")
