"""Speaks the judge's protocol and does what solution.py says in plain assignments:

JUDGE = "wrong"       wrong (a call of the first case), part (judges only that case), none (gets no call of it),
                      lost (exits), hang (says nothing), refuse (cannot load the task)

With $FAKE_NO_JUDGE it cannot start.
"""

import json
import os
import re
import sys
import time

CALLS = 64


def emit(event, **data):
    os.write(1, (json.dumps({"event": event, **data}) + "\n").encode())


def main(device, waits=""):
    emit("hello", protocol=1)
    if os.environ.get("FAKE_NO_JUDGE"):
        emit("unusable", code="no_device", message="cuda:0 cannot be used: exclusive process")
        sys.exit(3)
    emit("ready", environment={"device": device, "device_name": "Fake 9000", "python": "3"})
    for line in sys.stdin:
        request = json.loads(line)
        if request["request"] != "judge":
            continue
        run = request["run"]
        with open(os.path.join(request["source"], "solution.py")) as file:
            found = re.search(r'^JUDGE = "(\w+)"', file.read(), re.MULTILINE)
        todo = found[1] if found else ""
        if todo == "lost":
            os._exit(1)
        if todo == "hang":
            time.sleep(60)
        if todo == "refuse":
            emit("finished", run=run, problem="reference.py failed to load: no module")
            continue
        emit("listening", run=run, address="fake")
        for index, case in enumerate(request["cases"][: 1 if todo == "part" else None]):
            problem = "output 0 differs at [0]: got 1, expected 2" if todo == "wrong" and index == 0 else None
            calls = 0 if todo == "none" and index == 0 else CALLS
            emit("judged", run=run, case=case, calls=calls, problem=problem)
        emit("finished", run=run, problem="")
