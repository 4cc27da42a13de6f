# Binds an AF_XDP socket to a link, writes the errno to a file, and keeps the socket while /run/hold exists.
import ctypes, mmap, os, socket, struct, sys, time

AF_XDP, SOL_XDP = 44, 283
TX_RING, UMEM_REG, UMEM_FILL_RING, UMEM_COMPLETION_RING, COPY = 3, 4, 5, 6, 2
FRAMES, CHUNK = 64, 2048

asking = socket.socket(AF_XDP, socket.SOCK_RAW, 0)
memory = mmap.mmap(-1, FRAMES * CHUNK)
place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
asking.setsockopt(SOL_XDP, UMEM_REG, struct.pack("QQIIII", place, FRAMES * CHUNK, CHUNK, 0, 0, 0))
for ring in [UMEM_FILL_RING, UMEM_COMPLETION_RING, TX_RING]:
    asking.setsockopt(SOL_XDP, ring, struct.pack("i", FRAMES))
address = struct.pack("HHIII", AF_XDP, COPY, socket.if_nametoindex(sys.argv[1]), 0, 0)
libc = ctypes.CDLL(None, use_errno=True)
refused = libc.bind(asking.fileno(), address, len(address)) and ctypes.get_errno()
open("/run/answer", "w").write(str(refused))
end = time.monotonic() + 60
while os.path.exists("/run/hold") and time.monotonic() < end:
    time.sleep(0.01)
