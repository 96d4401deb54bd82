//go:build linux

package proctree

import (
	"encoding/json"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// keeperSocket is the descriptor at which a keeper finds its socket.
	keeperSocket = 3
	// wordsOfStart come before a command's arguments.
	wordsOfStart = 5
)

// Keep is all that a keeper's process does, see [Keeper]: it starts what it is
// told to, reports each end, and when the process that started it is no more it
// kills all that is left, waits for it and returns an exit code. Call it at the
// start of main, before anything else starts processes.
func Keep() int {
	unix.CloseRange(keeperSocket, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	deafen()
	if becomeSubreaper() != nil {
		return 1
	}
	born, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return 1
	}
	k := &keeping{nested: bareLimit(), roots: make(map[int]string), born: born}
	k.settled.L = &k.mu
	debug.FreeOSMemory() // what a program needs to begin is more than it needs here
	k.tell("ready")
	go func() {
		for k.serve() {
		}
		k.finish()
		k.over.Store(true)
		k.wake()
	}()
	runtime.LockOSThread() // the first one, which the kernel tells of a child's end
	k.reap()
	return 0
}

// deafen has signals do nothing here: this process ends when its forests do,
// not with a terminal or a service. What is handled, unlike what is ignored,
// has its default meaning in a child.
func deafen() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
}

// bareLimit takes the limit of file locks back that this process was born with
// if its parent just then bore a mark for somebody else, and tells whether it
// runs inside another forest's tree.
func bareLimit() (nested bool) {
	limit, err := limitOf(os.Getpid())
	if err != nil {
		return false
	}
	limit.Cur = limit.Max
	unix.Prlimit(0, markLimit(), &limit, nil)
	return limit.Max != unix.RLIM_INFINITY
}

// keeping is a keeper's state. One goroutine starts what it is told to, the
// other waits for what has ended: a start takes until the other program runs,
// and no report waits for that.
type keeping struct {
	nested  bool
	remains []Remains // what else goes in the end
	born    int       // an eventfd that says that there may be a child again

	over atomic.Bool // nothing is left to wait for

	mu       sync.Mutex
	roots    map[int]string // the ids of the first processes, by number
	starting bool
	settled  sync.Cond // starting has become false
}

// serve does the next thing that the socket asks for; false at its end.
func (k *keeping) serve() bool {
	words, files, err := receive()
	defer closeAll(files)
	return err == nil && k.handle(words, files)
}

// receive reads one frame and the descriptors that come with it.
func receive() (words []string, files []int, err error) {
	var head [frameHead]byte
	space := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, err := 0, 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, oobn, _, _, err = unix.Recvmsg(keeperSocket, head[:], space, unix.MSG_CMSG_CLOEXEC|unix.MSG_WAITALL)
	}
	if err != nil || n < len(head) {
		return nil, nil, errFrame
	}
	messages, _ := unix.ParseSocketControlMessage(space[:oobn])
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			files = append(files, fds...)
		}
	}
	size, err := bodySize(head[:])
	if err == nil {
		words, err = readBody(socketReader{}, size)
	}
	return words, files, err
}

// socketReader reads the socket, whose other end writes frames as a whole.
type socketReader struct{}

func (socketReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(keeperSocket, p)
		switch {
		case err == unix.EINTR:
		case n <= 0:
			return 0, errFrame
		default:
			return n, nil
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// tell sends a frame. When nobody is there any more the next poll says so.
func (k *keeping) tell(words ...string) {
	for frame := makeFrame(words...); len(frame) > 0; {
		n, err := unix.SendmsgN(keeperSocket, frame, nil, nil, unix.MSG_NOSIGNAL)
		if err != nil && err != unix.EINTR {
			return
		}
		frame = frame[max(n, 0):]
	}
}

// handle does what a frame says; false when it makes no sense.
func (k *keeping) handle(words []string, files []int) bool {
	switch words[0] {
	case "keep", "drop":
		var r Remains
		if len(words) != 2 || json.Unmarshal([]byte(words[1]), &r) != nil {
			return false
		}
		k.remains = slices.DeleteFunc(k.remains, func(have Remains) bool { return have == r })
		if words[0] == "keep" {
			k.remains = append(k.remains, r)
		}
		return true
	case "start":
		return k.start(words, files)
	}
	return false
}

// start starts a first process in a session of its own.
func (k *keeping) start(words []string, files []int) bool {
	if len(words) < wordsOfStart || len(files) == 0 {
		return false
	}
	id, path := words[1], words[3]
	value, err1 := strconv.ParseUint(words[2], 10, 64)
	n, err2 := strconv.Atoi(words[4])
	rest := words[wordsOfStart:]
	if err1 != nil || err2 != nil || n < 0 || n > len(rest) {
		return false
	}
	last := len(files) - 1
	attr := &syscall.ProcAttr{
		Dir: "/proc/self/fd/" + strconv.Itoa(files[last]),
		Env: rest[n:],
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	for _, fd := range files[:last] {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	k.begin()
	p, err := k.markOf(value).birth(func() (*os.Process, error) {
		pid, err := syscall.ForkExec(path, rest[:n], attr)
		return &os.Process{Pid: pid}, err
	})
	if err != nil {
		errno, _ := err.(syscall.Errno)
		k.began(0, "")
		k.tell("failed", id, strconv.Itoa(int(errno)))
		return true
	}
	k.began(p.Pid, id)
	return true
}

// begin says that a process will be there before its number is known here.
func (k *keeping) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.starting = true
}

// began ends what begin began and reports the process, if it is one.
func (k *keeping) began(pid int, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if pid != 0 {
		k.roots[pid] = id
		k.tell("started", id, strconv.Itoa(pid))
	}
	k.starting = false
	k.settled.Broadcast()
	k.wake()
}

// wake has reap look again.
func (k *keeping) wake() {
	one := [8]byte{1}
	unix.Write(k.born, one[:])
}

// markOf returns the mark that a forest has given to a tree.
func (k *keeping) markOf(value uint64) mark {
	if value == 0 {
		return mark{}
	}
	return mark{marks: &marks{base: value &^ numbers, nested: k.nested}, value: value}
}
