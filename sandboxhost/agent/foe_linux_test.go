package agent_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// foe does to process 1 what it is told by name, and returns an exit code: 0
// when it got nothing. What it got goes to standard output.
func foe(what string) int {
	name, arg, _ := strings.Cut(what, " ")
	deeds := map[string]func(arg string) []string{"signal": signals, "massacre": massacre, "spy": spy, "deface": deface, "flood": flood}
	got := deeds[name](arg)
	for _, line := range got {
		fmt.Println(line)
	}
	return min(len(got), 1)
}

// signals sends process 1 a signal in every way that there is, also as if it
// were a fault of its own.
func signals(arg string) []string {
	n, _ := strconv.Atoi(arg)
	sig := unix.Signal(n)
	threads, _ := os.ReadDir("/proc/1/task")
	for range 3 {
		unix.Kill(1, sig)
		for _, thread := range threads {
			tid, _ := strconv.Atoi(thread.Name())
			unix.Tgkill(1, tid, sig)
			for _, code := range []int32{-1, -2, -5, -60} {
				queue(tid, sig, code)
			}
		}
		if fd, err := unix.PidfdOpen(1, 0); err == nil {
			unix.PidfdSendSignal(fd, sig, nil, 0)
			unix.Close(fd)
		}
		byDescriptor(sig)
	}
	return nil
}

// queue is sigqueue(3) with a code of the sender's choice.
func queue(tid int, sig unix.Signal, code int32) {
	var info [128]byte
	binary.NativeEndian.PutUint32(info[0:], uint32(sig))
	binary.NativeEndian.PutUint32(info[8:], uint32(code))
	p := uintptr(unsafe.Pointer(&info))
	unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(sig), p)
	unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, 1, uintptr(tid), uintptr(sig), p, 0, 0)
}

// byDescriptor has the kernel send the signal, for a pipe that can be read.
func byDescriptor(sig unix.Signal) {
	var fds [2]int
	if unix.Pipe(fds[:]) != nil {
		return
	}
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETOWN, 1)
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETSIG, int(sig))
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETFL, unix.O_ASYNC)
	unix.Write(fds[1], []byte("x"))
	unix.Close(fds[0])
	unix.Close(fds[1])
}

// massacre kills everybody.
func massacre(string) []string {
	for range 100 {
		unix.Kill(-1, unix.SIGKILL)
	}
	return nil
}

// spy looks at everything that process 1 keeps to itself, and returns what it
// has seen or changed.
func spy(string) []string {
	var got []string
	for _, name := range []string{"environ", "maps", "smaps", "auxv", "stack", "syscall", "io", "pagemap", "mem", "personality", "task/1/mem", "task/1/environ"} {
		if f, err := os.Open("/proc/1/" + name); err == nil {
			text := make([]byte, 256)
			if n, _ := f.Read(text); n > 0 {
				got = append(got, fmt.Sprintf("%s: %q", name, text[:n]))
			}
		}
	}
	for _, name := range []string{"map_files", "root/", "cwd/"} {
		if names, _ := filepath.Glob("/proc/1/" + name + "/*"); len(names) > 0 {
			got = append(got, fmt.Sprintf("%s: %v", name, names))
		}
	}
	for _, name := range []string{"exe", "root", "cwd", "fd/0", "fd/3", "ns/mnt"} {
		if to, err := os.Readlink("/proc/1/" + name); err == nil {
			got = append(got, name+" leads to "+to)
		}
	}
	for fd := range 64 {
		for _, dir := range []string{"/proc/1/fd/", "/proc/1/fdinfo/"} {
			name := dir + strconv.Itoa(fd)
			if _, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
				got = append(got, "opened "+name)
			}
		}
	}
	if f, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0); err == nil {
		got = append(got, "opened "+f.Name())
	}
	return append(got, trace()...)
}

// trace attaches to process 1, and reads and writes its memory without.
func trace() []string {
	here := make([]byte, 8)
	mine := []unix.Iovec{{Base: &here[0], Len: 8}}
	text := []unix.RemoteIovec{{Base: 0x400000, Len: 8}} // where a Go program begins
	var got []string
	try := func(what string, err error) {
		if err == nil {
			got = append(got, what)
		}
	}
	try("ptrace seize", unix.PtraceSeize(1)) // this one does not stop it
	try("ptrace attach", unix.PtraceAttach(1))
	_, err := unix.ProcessVMReadv(1, mine, text, 0)
	try("process_vm_readv", err)
	_, err = unix.ProcessVMWritev(1, mine, text, 0)
	try("process_vm_writev", err)
	if fd, err := unix.PidfdOpen(1, 0); err == nil {
		for n := range 16 {
			_, err := unix.PidfdGetfd(fd, n, 0)
			try("pidfd_getfd "+strconv.Itoa(n), err)
		}
	}
	_, _, errno := unix.Syscall6(unix.SYS_KCMP, 1, 1, 0, 0, 0, 0)
	try("kcmp", asError(errno))
	return got
}

func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// deface changes the agent's program and, where there is one, removes its
// socket.
func deface(socket string) []string {
	const program = "/controld-agent"
	var got []string
	for what, err := range map[string]error{
		"truncate": os.Truncate(program, 0),
		"remove":   os.Remove(program),
		"rename":   os.Rename(program, "/workspace/was"),
		"chmod":    os.Chmod(program, 0o777),
		"write":    os.WriteFile(program, []byte("x"), 0o755),
		"mount":    unix.Mount("/foe", program, "", unix.MS_BIND, ""),
		"by proc":  os.WriteFile("/proc/1/exe", []byte("x"), 0o755),
	} {
		if err == nil {
			got = append(got, what)
		}
	}
	if socket != "" {
		if err := os.Remove(socket); err != nil {
			got = append(got, "the socket stays: "+err.Error())
		}
		os.WriteFile(socket, []byte("x"), 0o600)
	}
	return got
}

// flood makes 10,000 connections, a few hundred at a time, that say all kinds
// of things but the secret.
func flood(socket string) []string {
	const conns, atOnce = 10_000, 400
	says := []string{
		"", "\x00\x01\x02\xff", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("[", 20000), strings.Repeat("{\"a\":", 3000),
		`{"jsonrpc":"2.0","id":1,"method":"exec","params":{"command":"touch /workspace/owned"}}` + "\n",
		`{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"token":"guess"}}` + "\n",
		`{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"token":""}}` + "\n" +
			`{"jsonrpc":"2.0","id":2,"method":"write_file","params":{"path":"owned","content":{"text":"x"}}}` + "\n",
		"CTRLD1 " + strings.Repeat("A", 43) + "\n", "CTRLD1 ",
	}
	var held []net.Conn
	for i := 0; i < conns; {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			time.Sleep(100 * time.Microsecond) // the queue of those who wait is full
			continue
		}
		i++
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		conn.Write([]byte(says[i%len(says)]))
		if held = append(held, conn); len(held) == atOnce {
			for _, conn := range held {
				conn.Close()
			}
			held = nil
		}
	}
	return nil
}
