"""The other end of a tap: a machine that has every address, and answers who asks for it and who pings it."""
import fcntl, os, struct, sys

name, flags = sys.argv[1], int(sys.argv[2], 0)
TAP, NO_PI = 0x2, 0x1000
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", name.encode(), TAP | NO_PI | flags))
own = bytes([0xC2, 0, 0, 0, 0, 0x99])
print("ready", flush=True)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


while True:
    frame = os.read(tap, 65536)
    to, sender, kind = frame[:6], frame[6:12], frame[12:14]
    if kind == b"\x08\x06" and frame[20:22] == b"\x00\x01":
        # Answers ARP requests for any address, except announcements and probes.
        asker, target = frame[28:32], frame[38:42]
        if asker not in (target, b"\0\0\0\0"):
            os.write(tap, sender + own + frame[12:20] + b"\x00\x02" + own + target + frame[22:28] + asker)
    elif kind == b"\x08\x00" and frame[23] == 1 and frame[34] == 8:
        length = struct.unpack("!H", frame[16:18])[0] - 20
        echo = b"\0\0\0\0" + frame[38 : 34 + length]
        echo += b"\0" * (len(echo) % 2)
        answer = echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
        os.write(tap, sender + own + frame[12:26] + frame[30:34] + frame[26:30] + answer)
