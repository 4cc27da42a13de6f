# Answers each TCP connection and each UDP datagram on one port with this pod's name and the client's address.
import contextlib, socket, sys, threading

port = int(sys.argv[1])


def answer(client):
    return f"{socket.gethostname()} {client[0]}".encode()


def answer_datagrams(udp):
    while True:
        _, client = udp.recvfrom(512)
        with contextlib.suppress(OSError):
            udp.sendto(answer(client), client)


udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", port))
threading.Thread(target=answer_datagrams, args=(udp,), daemon=True).start()
tcp = socket.create_server(("", port), backlog=128)
while True:
    connection, client = tcp.accept()
    # A readiness probe closes its connection before the answer.
    with contextlib.suppress(OSError), connection:
        connection.sendall(answer(client))
