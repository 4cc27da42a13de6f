# Sends frames for so many seconds and 200 at least from an AF_XDP socket, to one hardware address; says how many the kernel took.
# In no time it only notes what the kernel answered when the socket asked for the link, and keeps it as long as somebody wants.
import ctypes, mmap, os, socket, struct, sys, time

dev, to, seconds = sys.argv[1], bytes.fromhex(sys.argv[2].replace(":", "")), float(sys.argv[3])
AF_XDP, SOL_XDP = 44, 283
MMAP_OFFSETS, TX_RING, UMEM_REG, UMEM_FILL_RING, UMEM_COMPLETION_RING = 1, 3, 4, 5, 6
TX_PLACE, COMPLETION_PLACE, COPY = 0x80000000, 0x180000000, 2
FRAMES, CHUNK, LEN = 64, 2048, 1514

sender = socket.socket(AF_XDP, socket.SOCK_RAW, 0)
memory = mmap.mmap(-1, FRAMES * CHUNK)
place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
sender.setsockopt(SOL_XDP, UMEM_REG, struct.pack("QQIIII", place, FRAMES * CHUNK, CHUNK, 0, 0, 0))
for ring in [UMEM_FILL_RING, UMEM_COMPLETION_RING, TX_RING]:
    sender.setsockopt(SOL_XDP, ring, struct.pack("i", FRAMES))
# Producer, consumer, descriptors and flags of each ring: received, sent, to be filled, completed.
offsets = struct.unpack("16Q", sender.getsockopt(SOL_XDP, MMAP_OFFSETS, 128))
tx, done = offsets[4:8], offsets[12:16]
tx_ring = mmap.mmap(sender.fileno(), tx[2] + FRAMES * 16, offset=TX_PLACE)
done_ring = mmap.mmap(sender.fileno(), done[2] + FRAMES * 8, offset=COMPLETION_PLACE)
address = struct.pack("HHIII", AF_XDP, COPY, socket.if_nametoindex(dev), 0, 0)
libc = ctypes.CDLL(None, use_errno=True)
refused = libc.bind(sender.fileno(), address, len(address)) and ctypes.get_errno()
if seconds == 0:
    open("/run/answer", "w").write(str(refused))
    end = time.monotonic() + 60
    while os.path.exists("/run/hold") and time.monotonic() < end:
        time.sleep(0.01)
    sys.exit()
assert not refused, refused

link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
link.bind((dev, 0))
own = link.getsockname()[4]
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1500, 0, 0, 64, 253, 0, socket.inet_aton("10.3.0.2"), socket.inet_aton("10.3.0.254"))
frame = (to + own + b"\x08\0" + ip).ljust(LEN, b"\0")
for at in range(FRAMES):
    memory[at * CHUNK:at * CHUNK + LEN] = frame
    struct.pack_into("QII", tx_ring, tx[2] + at * 16, at * CHUNK, LEN, 0)
number = lambda ring, at: struct.unpack_from("I", ring, at)[0]
taken, end = 0, time.monotonic() + seconds
while time.monotonic() < end or taken < 200 and time.monotonic() < end + 60:
    completed = number(done_ring, done[0])
    struct.pack_into("I", done_ring, done[1], completed)
    struct.pack_into("I", tx_ring, tx[0], (completed + FRAMES) % 2**32)
    libc.send(sender.fileno(), None, 0, socket.MSG_DONTWAIT)
    taken = completed
print(taken)
