# Which programs see what leaves the links of this network namespace before all filters (tcx, Linux 6.6): "link: name" for
# each, the first one first. With a link's name, takes its programs away. bpftool shows them since 7.3 only.
import ctypes, platform, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
NUMBER = {"x86_64": 321}.get(platform.machine(), 280)
PROG_DETACH, PROG_GET_FD_BY_ID, OBJ_GET_INFO, PROG_QUERY, TCX_EGRESS = 9, 13, 15, 16, 47


def bpf(command, *numbers, layout):
    attr = ctypes.create_string_buffer(struct.pack(layout, *numbers).ljust(128, b"\0"))
    return libc.syscall(NUMBER, command, attr, 128), attr.raw


def programs(index):
    ids = ctypes.create_string_buffer(4 * 64)
    asked, answer = bpf(PROG_QUERY, index, TCX_EGRESS, 0, 0, ctypes.addressof(ids), 64, layout="IIIIQI")
    count = struct.unpack_from("I", answer, 24)[0] if asked == 0 else 0
    return [bpf(PROG_GET_FD_BY_ID, number, layout="I")[0] for number in struct.unpack_from(f"{count}I", ids)]


def name(program):
    info = ctypes.create_string_buffer(128)
    bpf(OBJ_GET_INFO, program, len(info), ctypes.addressof(info), layout="IIQ")
    return info.raw[64:80].split(b"\0")[0].decode()


for index, link in socket.if_nameindex():
    for program in programs(index):
        if len(sys.argv) == 1:
            print(f"{link}: {name(program)}")
        elif link == sys.argv[1]:
            assert bpf(PROG_DETACH, index, program, TCX_EGRESS, layout="III")[0] == 0, ctypes.get_errno()
