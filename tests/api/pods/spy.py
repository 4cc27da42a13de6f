#!/usr/bin/env python3
"""A foreign plugin that writes down each call, does what its configuration says, and answers that."""
import json
import os
import subprocess
import sys
import time

text = sys.stdin.read()
conf = json.loads(text, parse_float=str)
verb = os.environ["CNI_COMMAND"]
call = {key: os.environ.get("CNI_" + key, "") for key in ("COMMAND", "CONTAINERID", "IFNAME", "NETNS", "ARGS")}
line = {**call, "plugin": os.path.basename(sys.argv[0]), "network": conf["name"], "conf": conf, "text": text}
with open("/run/spied", "a") as log:
    log.write(json.dumps(line) + "\n")
if conf.get("alone"):
    # Two at once would meet.
    try:
        os.mkdir("/run/busy")
    except FileExistsError:
        open("/run/met", "w")
    time.sleep(0.2)
    os.rmdir("/run/busy")
if conf.get("pause") == verb:
    # Two pipes: the test learns that the call has come so far, and lets it go on.
    open("/run/reached", "w").close()
    open("/run/go-on").close()
if conf.get("fail") == verb or os.path.exists("/run/fail." + conf["name"] + "." + verb):
    msg = conf.get("msg", "spy was told to fail")
    print(json.dumps({"cniVersion": conf["cniVersion"], "code": 107, "msg": msg}))
    sys.exit(1)
info, path = conf.get("device-info"), conf.get("runtimeConfig", {}).get("CNIDeviceInfoFile")
if verb == "ADD" and info is not None and path is not None:
    with open(path, "w") as file:
        json.dump(info, file)
for command in conf.get(verb, []):
    subprocess.run(["nsenter", "--net=" + call["NETNS"], "ip", *command.split()], check=True)
if verb == "ADD":
    interface = {"name": call["IFNAME"], "sandbox": call["NETNS"]}
    says = conf.get("says", conf.get("prevResult", {"cniVersion": conf["cniVersion"], "interfaces": [interface]}))
    if says is not None:
        print(json.dumps(says))
