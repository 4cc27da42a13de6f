# Sends a number of requests and prints each answer, or the reason of the first failure. Arguments: protocol, source
# address or "", address, port, number.
import socket, sys

protocol, source, address, port, times = sys.argv[1:]
kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[protocol]
for _ in range(int(times)):
    with socket.socket(socket.AF_INET, kind) as asking:
        asking.settimeout(5)
        try:
            if source:
                asking.bind((source, 0))
            asking.connect((address, int(port)))
            if protocol == "udp":
                asking.send(b"?")
            print("answer", asking.recv(512).decode())
        except OSError as error:
            print("failed", error)
            break
